"""Train a CNN on handwritten digits with whole training steps compiled, and evaluate it.

Real MNIST is downloaded only if ``TORCHSTONE_ALLOW_DOWNLOAD=1`` (or ``CLOUD_MNIST_OK``,
``CODEX_CLOUD`` or ``MNIST_ALLOW_DOWNLOAD``) is set. Otherwise scikit-learn's digits are used, which
are small and need no network.
"""

from __future__ import annotations

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import torchstone
from torchstone.backend.records import recorded
from torchstone.parity.demo import Digits, load_digits
from torchstone.parity.mnist import download_allowed, load_mnist

BATCH = 64
ENOUGH = 0.98


def network(size: int) -> nn.Sequential:
    """Images ``[n, 1, size, size]`` → scores ``[n, 10]``."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (size // 2) ** 2, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(model: nn.Module, digits: Digits, epochs: int) -> int:
    """Train the model, and return how many programs were compiled for it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    steps = epochs * -(-len(digits.labels) // BATCH)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)
    step = torchstone.compile_step(model, optimizer, cross_entropy)
    for epoch in range(epochs):
        for batch in torch.randperm(len(digits.labels)).split(BATCH):  # the last one is smaller
            loss = step(digits.images[batch], digits.labels[batch])
            scheduler.step()
        print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {accuracy(model, digits):.2%}")
    return step.programs


def accuracy(model: nn.Module, digits: Digits) -> float:
    with torch.no_grad():
        scores = torch.cat([model(images) for images in digits.test_images.split(1000)])
    return (scores.argmax(1) == digits.test_labels).float().mean().item()


def main() -> int:
    torch.manual_seed(0)
    if download_allowed():
        digits, epochs = load_mnist(), 3
        print("data: MNIST, 60,000 digits of 28 × 28")
    else:
        digits, epochs = load_digits(), 20
        print("data: scikit-learn's 1,797 digits of 8 × 8 (TORCHSTONE_ALLOW_DOWNLOAD=1 downloads MNIST)")
    model = network(digits.images.shape[-1])
    with recorded() as graphs:
        programs = train(model, digits, epochs)
    reached = accuracy(model, digits)
    fallbacks = sum(len(one.fallbacks) for one in graphs)
    print(f"programs: {programs}, operators that fell back to eager: {fallbacks}")
    print(f"test accuracy: {reached:.2%}")
    return 0 if reached >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
