"""What a call and a training step cost on the eager device: plain, fused, PyTorch's CPU, and torchax.

torchax is measured where it is installed (``pip install --no-deps torchax``).
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch

from .measure import Row, paired

CALLS, WARM_UP = 100, 3


def rows() -> Iterator[Row]:
    import torchstone.device  # changes PyTorch for the whole process, so import it only for this suite

    torchstone.device.register()
    seconds = paired(_candidates(chain))
    beside, notes = _torchax()
    yield Row(
        f"one of {CALLS} pointwise calls on 64 floats",
        {name: each / CALLS for name, each in seconds.items()} | beside,
        "cpu",
        "plain ≤ 30 µs, fused ≤ 10 µs",
        seconds["plain"] <= CALLS * 30e-6 and seconds["fused"] <= CALLS * 10e-6,
        notes,
    )
    seconds = paired(_candidates(_training_step), budget_s=6.0)
    yield Row(
        "training step of a CNN, AdamW",
        seconds,
        "cpu",
        "fused ≤ 1.3 × cpu",
        seconds["fused"] <= 1.3 * seconds["cpu"],
    )


def _candidates(make: Callable[[str], Callable[[], object]]) -> dict[str, Callable[[], object]]:
    found = {"cpu": make("cpu"), "plain": make("pjrt"), "fused": torch.pjrt.lazy()(make("pjrt"))}
    for call in found.values():
        for _ in range(WARM_UP):  # an optimizer's first step is another program
            call()
    return found


def _torchax() -> tuple[dict[str, float], dict[str, str]]:
    """Return what a call costs in torchax, measured in a separate process, or why there is no figure."""
    if importlib.util.find_spec("torchax") is None:
        return {}, {}
    command = [sys.executable, "-m", "benchmarks.torchax_calls"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        return {}, {"torchax": done.stderr.strip().rpartition("\n")[2]}
    return {"torchax": float(done.stdout.split()[-1])}, {}


def chain(device: str) -> Callable[[], object]:
    x, y = torch.randn(64).to(device), torch.randn(64).to(device)

    def call() -> torch.Tensor:
        z = x
        for _ in range(CALLS // 4):
            z = (z + y).mul(y).sub(y).relu()
        return z

    return call


def _training_step(device: str) -> Callable[[], object]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 7 * 7, 10),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(64, 1, 28, 28).to(device), torch.randint(0, 10, (64,)).to(device)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step
