"""Each program that a training step makes after its first says why."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchstone


class Warming(torch.optim.SGD):
    """Branches on a number of its own."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            if group["lr"] > 0.5:
                group["params"][0].grad.mul_(0.5)
        return super().step()


def recorded(change: Any, *, optimizer: type[torch.optim.SGD] = torch.optim.SGD, rows: int = 8) -> list[str]:
    """Return the reasons for new programs after a warm-up, for a step on ``rows`` rows after ``change``."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0))
    own = optimizer(model.parameters(), lr=0.1, momentum=0.9)
    step = torchstone.compile_step(model, own, torch.nn.functional.mse_loss)
    for _ in range(2):
        step(torch.randn(8, 4), torch.randn(8, 4))
    change(model, own)
    with torchstone.profile() as found:
        step(torch.randn(rows, 4), torch.randn(rows, 4))
    assert [one.name for one in found.recompiles] == ["training step"] * len(found.recompiles)
    return [one.reason for one in found.recompiles]


def nothing(model: Any, optimizer: Any) -> None:
    pass


def lower_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.05


def high_rate(model: Any, optimizer: Any) -> None:
    optimizer.param_groups[0]["lr"] = 0.75


@pytest.mark.conformance
def test_another_learning_rate_is_no_reason() -> None:
    assert recorded(lower_rate) == []


def test_a_batch_of_another_size() -> None:
    (reason,) = recorded(nothing, rows=3)
    assert "leaf 0 of the batch is torch.float32 [3, 4] with strides [4, 1]" in reason
    assert "before it was torch.float32 [8, 4]" in reason


def test_another_mode() -> None:
    (reason,) = recorded(lambda model, _: model.eval())
    assert reason.startswith("train() or eval() was called, or a module, a hook, an attribute or a value")


def test_a_number_that_the_optimizer_branches_on() -> None:
    assert recorded(lower_rate, optimizer=Warming) == []
    (reason,) = recorded(high_rate, optimizer=Warming)
    assert reason == "code of the step branches on numbers that changed: False before, True now"


def test_state_of_another_form() -> None:
    def freeze(model: Any, optimizer: Any) -> None:
        model.register_buffer("more", torch.zeros(3))

    (reason,) = recorded(freeze)
    assert "the state has another form" in reason
