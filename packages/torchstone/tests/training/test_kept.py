"""Python values that code of a step keeps outside the model's attributes: refused, and restored."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError
from training_loops import batches, eager_step

Tensor = torch.Tensor
CALLS = 0


class Counter:
    def __init__(self) -> None:
        self.calls = 0


class Keeping(nn.Module):
    """A linear layer whose output is scaled by a function of the module, with attributes of several kinds."""

    def __init__(self, scale: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.scale = nn.Linear(8, 3), scale
        self.stats: dict[str, int] = {"calls": 0}
        self.empty: dict[str, int] = {}
        self.history: list[Any] = [1.0]
        self.counter = Counter()
        self.cache: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x) * self.scale(self, x)
        return out


def in_a_dict(module: Any, x: Tensor) -> int:
    module.stats["calls"] += 1
    return int(module.stats["calls"])


def in_an_empty_dict(module: Any, x: Tensor) -> int:
    module.empty["calls"] = module.empty.get("calls", 0) + 1
    return int(module.empty["calls"])


def in_a_list(module: Any, x: Tensor) -> int:
    module.history.append(2.0)
    return len(module.history)


def in_an_object(module: Any, x: Tensor) -> int:
    module.counter.calls += 1
    return int(module.counter.calls)


def in_a_global(module: Any, x: Tensor) -> int:
    global CALLS
    CALLS += 1
    return CALLS


def around() -> Callable[[Any, Tensor], int]:
    calls = 0

    def in_a_closure(module: Any, x: Tensor) -> int:
        nonlocal calls
        calls += 1
        return calls

    return in_a_closure


REFUSED: dict[str, tuple[Callable[[Any, Tensor], Any], str]] = {
    "a dict": (in_a_dict, r"model\.stats\['calls'\] from 0 to 1"),
    "an empty dict": (in_an_empty_dict, r"model\.empty\['calls'\]"),
    "a list": (in_a_list, r"model\.history\[1\]"),
    "an object": (in_an_object, r"model\.counter\.calls from 0 to 1"),
    "a global": (in_a_global, "CALLS from 0 to 1"),
    "a closure": (around(), "calls from 0 to 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_numbers_outside_of_attributes(name: str) -> None:
    scale, message = REFUSED[name]
    model = Keeping(scale)
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    for _ in range(2):  # the refused change was undone, so the second call finds it again
        with pytest.raises(CaptureError, match=rf"the step changes {message} while it is traced"):
            step(*next(batches(1)))
    torch.testing.assert_close(model.state_dict(), before)
    assert (model.stats, model.empty, model.history) == ({"calls": 0}, {}, [1.0])
    assert (model.counter.calls, CALLS) == (0, 0)


def test_a_scheduler_that_a_hook_of_the_optimizer_runs() -> None:
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda *_: scheduler.step())
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    with pytest.raises(CaptureError, match=r"uses the scheduler ExponentialLR \(its '_step_count'\)"):
        step(*next(batches(1)))
    assert optimizer.param_groups[0]["lr"] == 0.1
    assert scheduler.last_epoch == 0


def keeps_tensors(module: Any, x: Tensor) -> int:
    module.history.append(x.mean())
    return 1


def test_tensors_in_a_list_are_refused_and_the_list_stays() -> None:
    model = Keeping(keeps_tensors)
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    with pytest.raises(CaptureError, match="keeps a tensor of the step in its attribute 'history'"):
        step(*next(batches(1)))
    assert model.history == [1.0]


class Making(OrderedDict[str, Any]):
    """Makes a new object at each lookup, as the activation tables of libraries do."""

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name)()


MAKING = Making(relu=nn.ReLU)


def test_tables_that_make_something_stay_as_they_are() -> None:
    model = Keeping(lambda module, x: MAKING["relu"](x.mean()) if module.stats else 1)
    model.mask = torch.ones(3)  # type: ignore[assignment]
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    step(*next(batches(1)))
    model.scale = in_a_dict
    with pytest.raises(CaptureError, match="the step changes model"):
        step(*next(batches(1, size=4)))
    assert dict.__getitem__(MAKING, "relu") is nn.ReLU


def cached(module: Any, x: Tensor) -> Tensor:
    if "mask" not in module.cache:
        module.cache["mask"] = torch.arange(3) + 1
    found: Tensor = module.cache["mask"]
    return found


def counted(module: Any, x: Tensor) -> int:
    if not hasattr(module, "calls"):
        module.calls = 0
    module.calls += 1
    return 1 + int(module.calls)


@pytest.mark.parametrize(("scale", "programs"), [(cached, 1), (counted, 3)])
def test_what_is_kept(scale: Callable[[Any, Tensor], Any], programs: int) -> None:
    """Constants in a cache, and an attribute that the first step makes."""
    model, expected = Keeping(scale), Keeping(scale)
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(3):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        assert getattr(model, "calls", None) == getattr(expected, "calls", None)
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs


def test_an_attribute_that_the_user_adds() -> None:
    made: list[Any] = [Keeping(lambda module, x: getattr(module, "factor", 1.0)) for _ in range(2)]
    model, expected = made
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for place, (inputs, targets) in enumerate(batches(3)):
        if place == 1:
            model.factor = expected.factor = 3.0
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
    assert step.programs == 2
