"""Models, batches and the eager training loop that compiled steps are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor


def mlp() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def batches(count: int, size: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(count):
        inputs = torch.randn(size, 8, generator=generator)
        yield inputs, torch.randint(0, 3, (size,), generator=generator)


def eager_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Any,
    targets: Any,
    loss_fn: Callable[..., Tensor] = F.cross_entropy,
) -> Tensor:
    optimizer.zero_grad()
    loss = loss_fn(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.detach()


def assert_same_training(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    expected_model: torch.nn.Module,
    expected_optimizer: torch.optim.Optimizer,
    **tolerances: float,
) -> None:
    """Check that parameters, buffers and the optimizer's whole state agree."""
    torch.testing.assert_close(model.state_dict(), expected_model.state_dict(), **tolerances)
    found, expected = optimizer.state_dict(), expected_optimizer.state_dict()
    assert found["state"].keys() == expected["state"].keys()
    for place, state in expected["state"].items():
        assert found["state"][place].keys() == state.keys()
        for name, value in state.items():
            assert type(found["state"][place][name]) is type(value)
            torch.testing.assert_close(found["state"][place][name], value, **tolerances)
