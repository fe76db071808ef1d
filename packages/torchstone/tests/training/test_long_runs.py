"""Many steps: the loss follows eager's, nothing is compiled or copied again, and memory stays flat."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest
import torch
from torch.nn import functional as F

import torchstone
from training_loops import eager_step


def cnn() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(72, 10),
    )


@pytest.mark.conformance
def test_the_loss_follows_eager_for_200_steps() -> None:
    """Train on scikit-learn's digits, in the same order and from the same initial weights."""
    from sklearn.datasets import load_digits

    images, labels = map(torch.from_numpy, load_digits(return_X_y=True))
    images = (images.float() / 16).reshape(-1, 1, 8, 8)
    model, expected = cnn(), cnn()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    expected_optimizer = torch.optim.SGD(expected.parameters(), lr=0.05, momentum=0.9)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    order = torch.Generator().manual_seed(0)
    found, losses = [], []
    for _ in range(200):
        rows = torch.randint(0, len(images), (32,), generator=order)
        found.append(step(images[rows], labels[rows]))
        losses.append(eager_step(expected, expected_optimizer, images[rows], labels[rows]))
    torch.testing.assert_close(torch.stack(found), torch.stack(losses), rtol=1e-3, atol=1e-4)
    assert losses[-1] < 0.2 < losses[0]
    assert step.programs == 2  # the first one makes the optimizer's state


_LONG = """
    import resource, sys
    import torch, torchstone
    from torch.nn import functional as F
    from torchstone.runtime import stats

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20

    def seen():
        found = stats()
        made = found.compiles + found.memory_hits + found.disk_hits
        return step.programs, made, sum(one.count for one in found.copies_in.values())

    steps, kind = int(sys.argv[1]), sys.argv[2]
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 256), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(256, 10)]
    model = torch.nn.Sequential(*layers)
    momentum = {"momentum": 0.9} if kind == "SGD" else {}
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=1e-3, **momentum)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, clip_norm=1.0)
    generator = torch.Generator().manual_seed(0)
    for number in range(1, steps + 1):
        x = torch.randn(17 if number % 20 == 0 else 64, 32, generator=generator)
        y = x[:, :10].argmax(1)
        if number % 3:
            step.accumulate(x, y)
        else:
            step(x, y)
            scheduler.step()
            step.clip_norm = 1.0 + 0.5 * (number % 7)
        if number % 50 == 0:
            with torch.no_grad():
                model.eval()(x)
            model.train()
        if number == 200:
            settled, memory = seen(), resident()
    assert seen() == settled, (settled, seen())
    assert abs(resident() / memory - 1) < 0.02, (memory, resident())
    print(*seen())
"""


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
@pytest.mark.parametrize("steps", [600, 10_000])
def test_nothing_grows(steps: int, kind: str) -> None:
    """The run has a changing rate, clipping, accumulation, evaluation and a last batch of another size."""
    words = [sys.executable, "-c", textwrap.dedent(_LONG), str(steps), kind]
    done = subprocess.run(words, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-2000:]
    programs, _, copies = map(int, done.stdout.split())
    assert programs <= 9
    assert copies == 0
