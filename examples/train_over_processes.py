"""Train a network on the devices of several processes, with the batch and the weights in parts.

    torchrun --nproc-per-node 2 examples/train_over_processes.py

``jax.distributed`` joins the processes. Anything that starts processes can be used instead of torchrun.
Without torchrun the script trains on one device, with the same losses.
"""

from __future__ import annotations

import os

import jax
import torch
from torch.nn import functional as F

import torchstone

STEPS = 100


def join_processes() -> tuple[int, int]:
    """How many processes torchrun has started, and the number of this one."""
    processes, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if processes > 1:
        port = int(os.environ["MASTER_PORT"]) + 1  # torchrun keeps MASTER_PORT for itself
        jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{port}", processes, rank)
    return processes, rank


def main() -> None:
    processes, rank = join_processes()
    # Every process makes the same model, but only needs its own rows of a batch.
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    inputs = torch.rand(STEPS, 64, 2) - 0.5
    targets = (inputs.prod(-1) > 0).long()

    step = torchstone.export_step(
        model,
        optimizer,
        F.cross_entropy,
        (inputs[0], targets[0]),
        mesh=torchstone.Mesh({"data": processes}),
        shardings={"inputs": "data", "targets": "data", "0.weight": "data", "2.weight": (None, "data")},
    )

    def own(batch: torch.Tensor) -> torchstone.LocalPart:
        return torchstone.LocalPart(batch.chunk(processes)[rank], batch.shape)

    losses = [float(step(own(x), own(y))) for x, y in zip(inputs, targets, strict=True)]
    weights = step.state()  # all processes ask, so that each gets whole weights

    if rank == 0:
        print(f"processes: {processes}")
        print(f"loss: {losses[0]:.4f} to {losses[-1]:.4f}")
        print(f"norm of the first weight: {float((weights['0.weight'] ** 2).sum() ** 0.5):.4f}")


if __name__ == "__main__":
    main()
