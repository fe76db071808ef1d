"""Ends executions as Ctrl-C does, and trains a small network for tests of what is left then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from torchstone.runtime._jaxlib_runs import Execution


def interrupt_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next execution end as if Ctrl-C had been pressed: Python runs the handler when it returns."""
    plain = Execution.take

    def take(self: Execution, results: Iterable[list[Any]]) -> list[Any]:
        monkeypatch.undo()
        plain(self, results)
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "take", take)


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16, bias=False), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4)
    )


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    torch.manual_seed(1)
    return [(torch.randn(6, 8), torch.randn(6, 4)) for _ in range(count)]


def trained(count: int) -> dict[str, torch.Tensor]:
    """Return the state of the network after ``count`` steps in eager PyTorch."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for inputs, targets in batches(count):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    return model.state_dict()


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    for name, value in expected.items():
        torch.testing.assert_close(found[name].cpu(), value, rtol=1e-5, atol=1e-6)
