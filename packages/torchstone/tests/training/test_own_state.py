"""Optimizers that keep values directly in their state, and not with a parameter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import TrainingError
from training_loops import batches, eager_step, mlp

Tensor = torch.Tensor


class Own(torch.optim.Optimizer):
    """Keeps a count, a number, a tensor and a word in its state."""

    state: Any

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.state["calls"] = 0
        self.state["decay"] = 1.0
        self.state["total"] = torch.zeros(())
        self.state["kind"] = "own"

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        state = self.state
        state["calls"] += 1
        state["decay"] *= 0.9
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state["total"] = state["total"] + p.grad.square().sum()
                    p.sub_(p.grad * group["lr"] * state["decay"] / (state["calls"] + state["total"]))


class Late(Own):
    """Makes its count in the first step."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        del self.state["calls"]

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        if "calls" not in self.state:
            self.state["calls"] = 0
        super().step()


@pytest.mark.parametrize(("kind", "programs"), [(Own, 1), (Late, 2)])
def test_values_of_the_optimizer(kind: type[Own], programs: int) -> None:
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = kind(model.parameters()), kind(expected.parameters())
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for place, batch in enumerate(batches(4)):
        if place == 2:
            optimizer.state["decay"] = expected_optimizer.state["decay"] = 0.5
        wanted = eager_step(expected, expected_optimizer, *batch)
        torch.testing.assert_close(step(*batch), wanted)
        found = dict(optimizer.state)
        torch.testing.assert_close(found.pop("total"), expected_optimizer.state["total"])
        assert found.pop("kind") == "own"
        assert found == pytest.approx({name: expected_optimizer.state[name] for name in ("calls", "decay")})
        assert (type(found["calls"]), type(found["decay"])) == (int, float)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs


def test_an_export_refuses_them() -> None:
    model = mlp()
    with pytest.raises(TrainingError, match="keeps 'calls' in its state, and an artifact names state"):
        torchstone.export_step(model, Own(model.parameters()), F.cross_entropy, next(batches(1)))
