"""Whole networks train on the device as on the CPU; long runs leak nothing; threads agree."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchstone.device.operators import plan_count
from torchstone.parity.demo import small_cnn
from torchstone.parity.zoo.networks import NETWORKS

from .mirrored import DEVICE

STEPS = 20


def losses(model: nn.Module, inputs: Any, device: str, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Train for ``STEPS`` steps of gradient descent on the model's mean squared output; return the losses.

    If a ``dtype`` is given, floats are converted to it first.
    """
    model = model.train().to(device, dtype)
    placed = [one.to(device, dtype if one.is_floating_point() else None) for one in inputs]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        returned = model(*placed)
        output = returned if isinstance(returned, torch.Tensor) else returned[0]
        loss = output.square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found, dtype=torch.float64)


def distance(found: torch.Tensor, exact: torch.Tensor) -> float:
    """Return the largest relative error of a loss."""
    return float(((found - exact) / exact).abs().max())


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("mlp", "cnn") else pytest.param(name, marks=pytest.mark.conformance)
        for name in NETWORKS
    ],
)
def test_a_network_trains_with_the_losses_of_the_cpu(name: str) -> None:
    """Where the losses differ, the device's are at most twice as far from those in float64 as the CPU's.

    After a dozen steps with batch norm, rounding alone moves the loss of ResNet-18 on the CPU by 2 %,
    with oneDNN or without.
    """
    torch.pjrt.reset_fallbacks()
    found, expected = (losses(*NETWORKS[name](), device) for device in (DEVICE, "cpu"))
    assert found[-1] < found[0]
    if distance(found, expected) > 2e-3:
        exact = losses(*NETWORKS[name](), "cpu", torch.float64)
        assert distance(found, exact) < 2 * distance(expected, exact)
    assert torch.pjrt.fallbacks() == {}


def test_the_network_of_the_example_learns_as_on_the_cpu() -> None:
    """Train the network of ``examples/train_digits.py``, which compiles it; here only the device changes."""
    images, labels = torch.rand(32, 1, 8, 8), torch.arange(32) % 10
    twin = small_cnn()
    found = {}
    for device in ("cpu", DEVICE):
        model = small_cnn()
        model.load_state_dict(twin.state_dict())
        model.to(device)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        found[device] = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            found[device].append(loss.item())
    torch.testing.assert_close(torch.tensor(found[DEVICE]), torch.tensor(found["cpu"]), rtol=5e-3, atol=1e-3)
    assert found[DEVICE][-1] < found[DEVICE][0]


@pytest.mark.parametrize("steps", [200, pytest.param(10_000, marks=pytest.mark.conformance)])
def test_many_steps_leak_nothing(steps: int) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 3, device=DEVICE)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    gc.collect()
    before = torch.pjrt.memory_allocated(), plan_count(), torch.pjrt.memory_stats()["allocation.all.current"]
    for _ in range(steps):
        step()
    gc.collect()
    after = torch.pjrt.memory_allocated(), plan_count(), torch.pjrt.memory_stats()["allocation.all.current"]
    assert after == before


def test_eight_threads_agree() -> None:
    weight = torch.randn(6, 6, device=DEVICE)

    def work(number: int) -> list[float]:
        x = torch.full((6, 6), 1.0 + number % 2, device=DEVICE, requires_grad=True)
        for size in range(1, 4):
            x.grad = None
            y = (x @ weight)[:size].tanh()
            y.t().mul(2).sum().backward()
        assert x.grad is not None
        return x.grad.flatten().tolist()

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(16)))
    assert all(one == found[number % 2] for number, one in enumerate(found))
