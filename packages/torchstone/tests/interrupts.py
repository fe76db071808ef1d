"""Ends executions as Ctrl-C does, and trains a small network for tests of what is left then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from torchstone.runtime._jaxlib import Execution

LATE = pytest.mark.parametrize("late", [False, True], ids=["executed", "taken"])


def interrupter(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Return a function that lets the next execution end as if Ctrl-C had been pressed meanwhile.

    Python runs the handler as soon as the execution returns; ``late``: after its results were taken apart.
    """
    armed: list[bool] = []
    plain = Execution.run

    def run(self: Execution, execute: Any, arguments: Sequence[Any]) -> list[Any]:
        if not armed:
            return plain(self, execute, arguments)
        if armed.pop():
            plain(self, execute, arguments)
        else:
            self._executed.append(execute(arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(Execution, "run", run)
    return armed.append


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
