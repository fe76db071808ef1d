"""Run a training loop that is hard-coded for CUDA, unchanged, on the best device that is available.

A whole script needs no code at all: ``torchstone redirect run train.py``.
"""

from __future__ import annotations

import torch
from torch import nn

import torchstone


def train() -> tuple[torch.device, list[float]]:
    """Mixed precision, pinned batches, a side stream, and the step replayed from a CUDA graph."""
    torch.cuda.manual_seed_all(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.zeros(16, 8, device="cuda:0"), torch.zeros(16, 1, device="cuda:0")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        optimizer.step()
        return loss

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()

    losses = []
    for _ in range(20):
        batch = torch.randn(16, 8).pin_memory()
        x.copy_(batch, non_blocking=True)
        y.copy_(batch.sum(1, keepdim=True), non_blocking=True)
        graph.replay()
        torch.cuda.synchronize()
        losses.append(loss.item())
    return x.device, losses


def main() -> None:
    torch.manual_seed(0)
    with torchstone.redirected(policy="quiet") as scope:
        print("redirected:", scope is not None, "is_available:", torch.cuda.is_available())
        device, losses = train()
    print(f"trained on {device}: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print("the loss fell:", losses[-1] < losses[0] / 2)


if __name__ == "__main__":
    main()
