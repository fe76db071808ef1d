"""Changes between two steps take effect in the next one: modules, hooks, functions, what code refers to."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import TrainingError
from training_loops import batches, eager_step

Tensor = torch.Tensor
Change = Callable[[Any, torch.optim.Optimizer], Any]


class Scaled(nn.Module):
    """Multiplies by a number of its class, and by numbers of objects that it has."""

    factor = 1.0

    def __init__(self) -> None:
        super().__init__()
        self.config = types.SimpleNamespace(gain=1.0, unread=0)
        self.sizes = [1.0, 2.0]
        self.table = {"gain": 1.0}
        self.function = torch.tanh

    def forward(self, x: Tensor) -> Tensor:
        scale = self.factor * self.config.gain * self.sizes[0] * self.table["gain"] * self.more()
        return self.function(x) * scale

    def more(self) -> float:
        return 1.0


class Halved(Scaled):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * 0.5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.act, self.second = nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)
        self.scaled, self.last = Scaled(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.scaled(self.third(self.act(self.second(self.act(self.first(x)))))))
        return out


def sgd(model: Any, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def trained(changes: Iterable[Change], loss_fn: Any = F.cross_entropy, make: Any = sgd) -> int:
    """Return a step's number of programs, after comparing it with eager PyTorch after each of ``changes``."""
    model, expected = Net(), Net()
    optimizer, expected_optimizer = make(model), make(expected)
    step, (inputs, targets) = torchstone.compile_step(model, optimizer, loss_fn), next(batches(1))
    for change in [lambda *_: None, *changes]:
        change(model, optimizer)
        change(expected, expected_optimizer)
        found = step(inputs, targets)
        wanted = eager_step(expected, expected_optimizer, inputs, targets, loss_fn)
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(model.state_dict(), expected.state_dict())
    return step.programs


def replaced(name: str, make: Callable[[], nn.Module]) -> Change:
    return lambda model, _: setattr(model, name, make())


def doubled(module: Any, args: Any, out: Tensor) -> Tensor:
    return out * 2


def doubled_gradient(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    optimizer.param_groups[0]["params"][0].grad.mul_(2)


def without_second(self: Any, x: Tensor) -> Tensor:
    out: Tensor = self.last(self.act(self.first(x)))
    return out


MODULES: dict[str, Change] = {
    "another class": replaced("act", nn.GELU),
    "a subclass": replaced("scaled", Halved),
    "a class in place": lambda model, _: setattr(model.scaled, "__class__", Scaled),
    "forward of the instance": lambda model, _: setattr(
        model, "forward", types.MethodType(without_second, model)
    ),
    "an attribute over the class's": lambda model, _: setattr(model.scaled, "factor", 3.0),
    "an attribute of an object": lambda model, _: setattr(model.scaled.config, "gain", 3.0),
    "an element of a list": lambda model, _: model.scaled.sizes.__setitem__(0, 3.0),
    "an element of a dict": lambda model, _: model.scaled.table.update(gain=3.0),
    "a function": lambda model, _: setattr(model.scaled, "function", torch.sin),
}


def test_a_module_that_changes() -> None:
    assert trained(MODULES.values()) == 1 + len(MODULES)


CLASSES: dict[str, tuple[Any, str, Any]] = {
    "forward of PyTorch's class": (nn.ReLU, "forward", lambda self, x: x * 2),
    "a helper": (Scaled, "more", lambda self: 3.0),
    "a number": (Scaled, "factor", 3.0),
    "a new name": (Halved, "more", lambda self: 1.5),
    "forward": (Net, "forward", without_second),
}


@pytest.mark.conformance
def test_a_class_that_is_patched(monkeypatch: pytest.MonkeyPatch) -> None:
    def patch(what: str) -> Change:
        kind, name, value = CLASSES[what]
        return lambda *_: monkeypatch.setattr(kind, name, value, raising=False)

    assert trained([replaced("scaled", Halved), *map(patch, CLASSES)]) == 2 + len(CLASSES)


HOOKS: dict[str, Callable[[Any, torch.optim.Optimizer], Any]] = {
    "forward": lambda model, _: model.act.register_forward_hook(doubled),
    "forward pre": lambda model, _: model.act.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "backward": lambda model, _: model.second.register_full_backward_hook(
        lambda module, given, _: (given[0] * 2,)
    ),
    "backward pre": lambda model, _: model.second.register_full_backward_pre_hook(
        lambda module, given: (given[0] * 2,)
    ),
    "tensor": lambda model, _: model.first.weight.register_hook(lambda grad: grad * 2),
    "all modules": lambda *_: nn.modules.module.register_module_forward_hook(
        lambda module, args, out: out * 1.5 if isinstance(module, nn.ReLU) else None
    ),
    "optimizer": lambda _, optimizer: optimizer.register_step_pre_hook(doubled_gradient),
}


@pytest.mark.kept("backward")
@pytest.mark.parametrize("what", HOOKS)
def test_a_hook_that_comes_and_goes(what: str) -> None:
    handles: list[Any] = []

    def add(model: Any, optimizer: Any) -> None:
        handles.append(HOOKS[what](model, optimizer))

    def remove(model: Any, optimizer: Any) -> None:
        handles.pop(0).remove()

    try:
        assert trained([add, add, remove, remove]) <= 5
    finally:
        while handles:
            handles.pop().remove()


def test_a_hook_after_accumulation_is_refused_when_it_comes() -> None:
    model = Net()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    inputs, targets = next(batches(1))
    step(inputs, targets)
    before = copy.deepcopy(model.state_dict())
    handle = model.first.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(TrainingError, match="has a hook that runs after its gradient is accumulated"):
        step(inputs, targets)
    torch.testing.assert_close(model.state_dict(), before)
    handle.remove()
    step(inputs, targets)
    assert step.programs == 1


def tie(name: str) -> Change:
    return lambda model, _: setattr(model.third, "weight", getattr(model, name).weight)


def swapped(model: Any, _: Any) -> None:
    model.first.weight, model.second.weight = model.second.weight, model.first.weight


def freeze(first: bool) -> Change:
    def change(model: Any, _: Any) -> None:
        model.first.weight.requires_grad_(not first)
        model.second.weight.requires_grad_(first)

    return change


def two_groups(one: nn.Module) -> torch.optim.Optimizer:
    p = list(one.parameters())
    groups = [{"params": p[:2], "lr": 0.1}, {"params": p[2:], "lr": 0.5}]
    return torch.optim.SGD(groups, momentum=0.9)


def without_third(one: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in one.parameters() if p is not one.third.weight], lr=0.1)


def swapped_groups(_: Any, optimizer: torch.optim.Optimizer) -> None:
    one, other = optimizer.param_groups
    one["params"][0], other["params"][0] = other["params"][0], one["params"][0]


def moved(_: Any, optimizer: torch.optim.Optimizer) -> None:
    one, other = optimizer.param_groups
    other["params"].append(one["params"].pop())


def swapped_state(_: Any, optimizer: torch.optim.Optimizer) -> None:
    p = optimizer.param_groups[0]["params"][0]
    q = optimizer.param_groups[1]["params"][0]
    state = optimizer.state
    state[p], state[q] = state[q], state[p]


STATE: dict[str, tuple[list[Change], Any]] = {
    "ties": ([tie("first"), tie("second"), tie("first")], without_third),
    "modules of parameters": ([swapped], sgd),
    "requires_grad": ([freeze(True), freeze(False)], sgd),
    "groups": ([swapped_groups, moved], two_groups),
    "the order of groups": ([lambda _, optimizer: optimizer.param_groups.reverse()], two_groups),
    "state": ([swapped_state], two_groups),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("what", STATE)
def test_what_belongs_together_changes(what: str) -> None:
    changes, make = STATE[what]
    assert trained(changes, make=make) > 1


def test_another_parameter_of_the_same_shape_has_a_gradient() -> None:
    def gradient_of(name: str) -> Change:
        def change(model: Any, optimizer: Any) -> None:
            optimizer.zero_grad()
            getattr(model, name).weight.grad = torch.ones(8, 8)

        return change

    model, expected = Net(), Net()
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected)]
    step = torchstone.compile_step(model, optimizers[0], F.cross_entropy)
    for name, (inputs, targets) in zip(("first", "second", "first"), batches(3), strict=True):
        for one, optimizer in zip((model, expected), optimizers, strict=True):
            gradient_of(name)(one, optimizer)
        F.cross_entropy(expected(inputs), targets).backward()
        optimizers[1].step()
        step(inputs, targets)
        torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == 2


GAIN, OPTIONS, TABLE = 1.0, types.SimpleNamespace(gain=1.0), {"gain": 1.0}


def gained(loss: Tensor) -> Tensor:
    return loss * GAIN * OPTIONS.gain * TABLE["gain"]


@pytest.mark.conformance
def test_what_the_loss_refers_to_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    gain, held = 1.0, torch.ones(())

    def loss_fn(out: Tensor, targets: Tensor, own: float = 1.0, *, other: float = 1.0) -> Tensor:
        return gained(F.cross_entropy(out, targets)) * gain * own * other * held

    def closure(*_: Any) -> None:
        nonlocal gain
        gain = 1.5

    changes: list[Change] = [
        closure,
        lambda *_: monkeypatch.setitem(globals(), "GAIN", 1.5),
        lambda *_: monkeypatch.setattr(OPTIONS, "gain", 1.5),
        lambda *_: monkeypatch.setitem(TABLE, "gain", 1.5),
        lambda *_: monkeypatch.setattr(loss_fn, "__defaults__", (1.5,)),
        lambda *_: monkeypatch.setattr(loss_fn, "__kwdefaults__", {"other": 1.5}),
        lambda *_: held.fill_(1.5),
        lambda *_: monkeypatch.setitem(globals(), "gained", lambda loss: loss),
    ]
    assert trained(changes, loss_fn) == len(changes)  # what was written into held is read


def test_the_default_dtype_is_part_of_a_program() -> None:
    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(out, targets) * torch.full((), 1 / 3).double()

    try:
        assert trained([lambda *_: torch.set_default_dtype(torch.float64)], loss_fn) == 2
    finally:
        torch.set_default_dtype(torch.float32)


def test_what_is_equal_or_unread_is_no_other_program() -> None:
    calls = []

    def loss_fn(out: Tensor, targets: Tensor) -> Tensor:
        calls.append(f"call {len(calls)}")
        return F.cross_entropy(out, targets)

    def equal(model: Any, optimizer: Any) -> None:
        model.scaled.factor = float("1.0")
        model.scaled.sizes = [1.0, 2.0]
        model.scaled.table = {"gain": 1.0}

    changes: list[Change] = [
        lambda model, _: setattr(model.scaled.config, "unread", model.scaled.config.unread + 1),
        lambda _, optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1),
        lambda model, _: model.act.register_forward_hook(doubled),
        lambda model, _: model.act._forward_hooks.clear(),
        lambda model, _: model.register_state_dict_post_hook(lambda *_: None),
    ]
    assert trained(changes, loss_fn) == 2
    assert trained([equal, equal]) == 2
