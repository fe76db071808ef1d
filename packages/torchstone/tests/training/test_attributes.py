"""Python state that code of a step keeps: attributes of modules, and data that it assigns to tensors."""

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

    def __init__(self, scale: Callable[[Any], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = nn.Linear(8, 3), scale
        self.calls, self.factor = 0, 1.0
        self.kept: Any = None

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self.scale(self)
        return out


def counted(module: Any) -> float:
    module.calls += 1
    return float(1 + module.calls)


def kept(module: Any) -> float:
    """Return a value that the first call computes and keeps."""
    if module.kept is None:
        module.kept = 0.5
        return 2.0
    return float(module.kept)


def numbered(module: Any) -> float:
    """Count in an attribute that the first call creates."""
    module.number = getattr(module, "number", 0) + 1
    return float(module.number)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("scale", "programs"), [(counted, 4), (numbered, 4), (kept, 2)])
def test_a_module_that_counts(scale: Callable[[Any], float], programs: int) -> None:
    model, expected = Scaled(scale), Scaled(scale)
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(4):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        assert (model.calls, model.kept) == (expected.calls, expected.kept)
        assert vars(model).get("number") == vars(expected).get("number")
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


def test_a_tensor_in_an_attribute() -> None:
    """The tensor is not a buffer: the user may write into it or replace it."""
    model, expected = (Scaled(lambda module: module.kept) for _ in range(2))
    optimizer, expected_optimizer = sgd(model), sgd(expected)
    model.kept, expected.kept = torch.tensor(1.0), torch.tensor(1.0)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for place, (inputs, targets) in enumerate(batches(5)):
        for one in (model, expected):
            if place == 1:
                one.kept = torch.tensor(3.0)
            if place == 3:
                one.kept.mul_(0.5)
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
    assert step.programs == 2  # what was written into it is read


def test_a_count_in_python_is_not_exported() -> None:
    model = Scaled(counted)
    with pytest.raises(TrainingError, match=r"changes Scaled\.calls, and a program has"):
        torchstone.export_step(model, sgd(model), F.cross_entropy, next(batches(1)))
    assert model.calls == 0
    model = Scaled(kept)
    with pytest.raises(TrainingError, match=r"changes Scaled\.kept, and a program has"):
        torchstone.export_step(model, sgd(model), F.cross_entropy, next(batches(1)))
    assert model.kept is None


class Twins(nn.Module):
    """A network, and a copy that follows it slowly, as in contrastive learning."""

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


@pytest.mark.sampled(2)
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


class Counting(Plain):
    """Counts its steps in one attribute, and has a factor in another one."""

    def __init__(self, params: Any, *, counts: bool) -> None:
        super().__init__(params)
        self.steps, self.factor, self.counts = 0, 1.0, counts

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += self.counts
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] * self.factor / (1 + self.steps) * p.grad


def test_attributes_of_an_optimizer() -> None:
    """The user may change them. The optimizer may not, because a program would not repeat the change."""
    model, expected = mlp(), mlp()
    optimizer, expected_optimizer = (Counting(one.parameters(), counts=False) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for factor, (inputs, targets) in zip((1.0, 0.5, 1.0), batches(3), strict=True):
        optimizer.factor = expected_optimizer.factor = factor
        step(inputs, targets)
        eager_step(expected, expected_optimizer, inputs, targets)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == 2
    counting, batch = Counting(model.parameters(), counts=True), next(batches(1))
    step = torchstone.compile_step(model, counting, F.cross_entropy)
    message = r"Counting\.step changes its attribute 'steps', from 0 to 1"
    with pytest.raises(TrainingError, match=message):
        step(*batch)
    with pytest.raises(TrainingError, match=message):
        torchstone.export_step(model, counting, F.cross_entropy, batch)


class Hidden(Plain):
    """Counts its steps in a private attribute, which the first step creates."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self._count = getattr(self, "_count", 0) + 1
        for group in self.param_groups:
            for p in group["params"]:
                p.data = p.data - group["lr"] / self._count * p.grad


def test_a_hidden_count_of_an_optimizer_is_refused() -> None:
    model = mlp()
    step = torchstone.compile_step(model, Hidden(model.parameters()), F.cross_entropy)
    with pytest.raises(TrainingError, match=r"Hidden\.step changes its attribute '_count', from None to 1"):
        step(*next(batches(1)))


def test_a_step_of_one_optimizer_alone_is_refused() -> None:
    """A program would do what the class does, not what this object does."""
    model = mlp()
    optimizer, before = sgd(model), copy.deepcopy(model.state_dict())
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    optimizer.step = lambda closure=None: None  # type: ignore[assignment, method-assign]
    with pytest.raises(TrainingError, match=r"this SGD has a step of its own, in place of SGD\.step"):
        step(*next(batches(1)))
    torch.testing.assert_close(model.state_dict(), before)
    del optimizer.step
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # it wraps the step method
    step(*next(batches(1)))


def test_data_of_another_shape_is_refused() -> None:
    def grows(p: nn.Parameter, q: nn.Parameter) -> None:
        q.data = torch.cat([q.data, p.data])

    model = Twins(grows)
    with pytest.raises(CaptureError, match=r"the data of one torch\.float32\[32, 8\]"):
        torchstone.compile_step(model, sgd(model), F.cross_entropy)(*next(batches(1)))
