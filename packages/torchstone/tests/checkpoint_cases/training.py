"""A training run with everything that a resumed one can get wrong, as a module and as a script.

python training.py run FOLDER FROM TO [kind]     # train steps FROM to TO, with a checkpoint before and after
"""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from torchstone import checkpoint
from torchstone.checkpoint.states import give_random_state, random_state


class Noisy(Dataset[tuple[torch.Tensor, int]]):
    """Samples with noise of all three global generators."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        noise = random.random() + numpy.random.rand() + torch.rand(()).item()
        return torch.linspace(0, 1, 6) * index + noise, index % 3


class Run:
    """A run with dropout, batch norm, a tied weight, Adam, a scheduler and a shuffled epoch of 6 batches."""

    def __init__(self, workers: int = 0, own_generator: bool = False) -> None:
        torch.manual_seed(3)
        numpy.random.seed(3)
        random.seed(3)
        layers = [
            torch.nn.Linear(6, 6),
            torch.nn.BatchNorm1d(6),
            torch.nn.Dropout(0.4),
            torch.nn.Linear(6, 6),
        ]
        layers[3].weight = layers[0].weight
        self.model = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(6, 3))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.1, total_steps=40)
        generator = torch.Generator().manual_seed(5) if own_generator else None
        self.loader = checkpoint.ResumableLoader(
            DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers, generator=generator)
        )
        self.step = 0
        self.losses: list[float] = []
        self.batches: list[str] = []
        self.random = random_state()

    @property
    def state(self) -> dict[str, Any]:
        """The objects to save or load. Reading it sets the global generators to where this run left them."""
        give_random_state(self.random)
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "loader": self.loader,
        }

    def train(self, until: int) -> None:
        while self.step < until:
            for inputs, targets in self.loader:
                self.batches.append(hashlib.sha256(inputs.numpy().tobytes()).hexdigest()[:8])
                self.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(self.model(inputs), targets)
                loss.backward()
                self.optimizer.step()
                self.scheduler.step()
                self.losses.append(loss.item())
                self.step += 1
                if self.step == until:
                    break
        self.random = random_state()

    def save(self, path: Path, **options: Any) -> None:
        checkpoint.save(path, **self.state, step=self.step, **options)

    def load(self, path: Path) -> None:
        self.step = checkpoint.load(path, **self.state).step or 0

    def digest(self) -> str:
        """Return a digest of every bit of the state, random generators included."""
        tensors = [*self.model.state_dict().values()]
        for entry in self.optimizer.state_dict()["state"].values():
            tensors += entry.values()
        total = hashlib.sha256()
        for tensor in tensors:
            total.update(tensor.numpy().tobytes())
        total.update(repr((self.scheduler.get_last_lr(), self.losses[-1:])).encode())
        total.update(repr((torch.rand(4).tolist(), numpy.random.rand(), random.random())).encode())
        return total.hexdigest()


def main(folder: str, start: str, until: str, workers: str = "0", own: str = "") -> None:
    run = Run(int(workers), bool(own))
    path = Path(folder)
    if int(start):
        run.load(path)
    run.train(int(until))
    run.save(path)
    print(run.step, *run.batches, run.digest())


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
