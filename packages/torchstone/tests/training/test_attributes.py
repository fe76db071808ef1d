"""What code of a step keeps in Python: attributes of modules, and data that it assigns to tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError, TrainingError
from training_loops import batches, eager_step, mlp

Tensor = torch.Tensor


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


class Scaled(nn.Module):
    """A linear layer whose output code of the module scales."""

    def __init__(self, scale: Callable[[Any], float]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = nn.Linear(8, 3), scale
        self.calls, self.factor, self.kept = 0, 1.0, None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self.scale(self)
        return out


def counted(module: Any) -> float:
    module.calls += 1
    return float(1 + module.calls)


def kept(module: Any) -> float:
    """A value that is computed at the first call."""
    if module.kept is None:
        module.kept = 0.5
        return 2.0
    return float(module.kept)


@pytest.mark.parametrize(("scale", "programs"), [(counted, 4), (kept, 2)])
def test_a_module_that_counts(scale: Callable[[Any], float], programs: int) -> None:
    model, expected = Scaled(scale), Scaled(scale)
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(4):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        assert (model.calls, model.kept) == (expected.calls, expected.kept)
    assert step.programs == programs
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


def test_an_attribute_that_the_user_changes() -> None:
    model, expected = (Scaled(lambda module: module.factor) for _ in range(2))
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    factors: list[Any] = [1.0, 3.0, 1.0, 3, True]
    for factor, (inputs, targets) in zip(factors, batches(5), strict=True):
        model.factor = expected.factor = factor
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
    assert step.programs == 4


def test_a_count_in_python_is_not_exported() -> None:
    model = Scaled(counted)
    with pytest.raises(TrainingError, match=r"changes Scaled\.calls, and a program has"):
        torchstone.export_step(model, sgd(model), F.cross_entropy, next(batches(1)))
    assert model.calls == 0


class Twins(nn.Module):
    """A network, and one that follows it slowly, as in contrastive learning."""

    def __init__(self, follow: Callable[[nn.Parameter, nn.Parameter], None]) -> None:
        super().__init__()
        self.first, self.follow = mlp(), follow
        self.second = copy.deepcopy(self.first).requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for p, q in zip(self.first.parameters(), self.second.parameters(), strict=True):
            self.follow(p, q)
        with torch.no_grad():
            target = self.second(x)
        out: Tensor = self.first(x) - target
        return out


def assigns(p: nn.Parameter, q: nn.Parameter) -> None:
    q.data = q.data * 0.9 + p.data * 0.1


def adds(p: nn.Parameter, q: nn.Parameter) -> None:
    q.data += (p.data - q.data) * 0.1


@pytest.mark.parametrize("follow", [assigns, adds])
def test_data_that_a_module_assigns(follow: Callable[[nn.Parameter, nn.Parameter], None]) -> None:
    model, expected = Twins(follow), Twins(follow)
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    exported = torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(3):
        loss = eager_step(expected, expected_optimizer, inputs, targets)
        torch.testing.assert_close(step(inputs, targets), loss)
        torch.testing.assert_close(exported(inputs, targets), loss)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


class Plain(torch.optim.Optimizer):
    """Assigns data, as optimizers written by hand do."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * p.grad


def test_data_that_an_optimizer_assigns() -> None:
    model, expected = mlp(), mlp()
    step = torchstone.compile_step(model, Plain(model.parameters()), F.cross_entropy)
    optimizer = Plain(expected.parameters())
    for inputs, targets in batches(3):
        torch.testing.assert_close(step(inputs, targets), eager_step(expected, optimizer, inputs, targets))
    torch.testing.assert_close(model.state_dict(), expected.state_dict())


def test_data_of_another_shape_is_refused() -> None:
    def grows(p: nn.Parameter, q: nn.Parameter) -> None:
        q.data = torch.cat([q.data, p.data])

    model = Twins(grows)
    with pytest.raises(CaptureError, match=r"the data of one torch\.float32\[32, 8\]"):
        torchstone.compile_step(model, sgd(model), F.cross_entropy)(*next(batches(1)))
