"""Attributes that are neither buffers nor parameters: exports keep them, and refuse state in them."""

from __future__ import annotations

import copy
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor
Step = Callable[["Model", Tensor], Tensor]

_SHARED = torch.zeros(3)


class Model(nn.Module):
    """Calls ``step`` with itself and the input; has plain attributes of several kinds."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.last: Any = None
        self.held = torch.ones(3)
        self.one = torch.tensor(1.0)
        self.list: list[Any] = []
        self.window = [torch.zeros(3), torch.ones(3)]
        self.dict = {"held": torch.ones(3)}
        self.object = types.SimpleNamespace(held=torch.ones(3))
        self.count = 0
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


def _keeps_attention(own: Model, x: Tensor) -> Tensor:
    own.last = x.softmax(0)
    own.count += 1
    return own.last * 2


def _replaces_what_it_does_not_read(own: Model, x: Tensor) -> Tensor:
    if len(own.held) != 5:
        own.held = x * 2
        own.dict["held"] = own.object.held = x
    return x + 1


def _adds_attributes(own: Model, x: Tensor) -> Tensor:
    own.added = x * 3
    own.list.append(x)
    own.dict["added"] = x
    own.object.added = x
    return x + 1


def _computes_once(own: Model, x: Tensor) -> Tensor:
    if own.last is None:
        own.last = torch.arange(3.0).cos()
    return x * own.last


def _converts(own: Model, x: Tensor) -> Tensor:
    own.held = own.held.to(torch.float64).contiguous()
    own.dict["held"] = own.dict["held"].type_as(x).detach()
    return x * own.held + own.dict["held"]


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize(
    "step",
    [_keeps_attention, _replaces_what_it_does_not_read, _adds_attributes, _computes_once, _converts],
    ids=lambda step: step.__name__.strip("_"),
)
def test_attributes_that_are_only_written_export(step: Step, depth: int) -> None:
    own = Model(step)
    model: nn.Module = own
    for _ in range(depth):
        model = nn.Sequential(nn.Identity(), model)
    eager, before, content = copy.deepcopy(model), dict(vars(own)), _content(own)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program = torchstone.export(model, (torch.ones(3),))
    assert vars(own).keys() == before.keys()
    assert all(value is before[name] for name, value in vars(own).items())
    assert _same(_content(own), content)
    for call in range(3):
        x = torch.full((3,), call + 1.0)
        torch.testing.assert_close(program(x), eager(x))


def _content(own: Model) -> list[list[Any]]:
    return [[*own.list], [*own.window], [*own.dict.items()], [*vars(own.object).items()]]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or (isinstance(one, str) and one == other)


def _carries_a_tensor(own: Model, x: Tensor) -> Tensor:
    own.held = own.held + x
    return own.held * 1


def _carries_an_entry(own: Model, x: Tensor) -> Tensor:
    own.dict["held"] = own.dict["held"] * x
    return own.dict["held"] + 1


def _carries_in_an_object(own: Model, x: Tensor) -> Tensor:
    y, own.object.held = own.object.held + x, x
    return y


def _moves_a_window(own: Model, x: Tensor) -> Tensor:
    own.window.append(x)
    return own.window.pop(0) + own.window[0]


def _removes(own: Model, x: Tensor) -> Tensor:
    y = x if own.last is None else x + own.last
    y, own.held = y + own.held, None  # type: ignore[assignment]
    return y


@pytest.mark.parametrize(
    ("step", "attribute"),
    [
        (_carries_a_tensor, "0.held"),
        (_carries_an_entry, r"0.dict\['held'\]"),
        (_carries_in_an_object, r"0.object\.held"),
        (_moves_a_window, r"0.window\[0\]"),
        (_removes, "0.held"),
    ],
)
def test_attributes_that_carry_state_are_refused(step: Step, attribute: str) -> None:
    own = Model(step)
    before, content = dict(vars(own)), _content(own)
    with pytest.raises(CaptureError, match=f"reads the tensor in the attribute {attribute} and replaces it"):
        torchstone.export(nn.Sequential(own), (torch.ones(3),))
    assert all(value is before[name] for name, value in vars(own).items())
    assert _same(_content(own), content)
    assert torch.equal(own.held, torch.ones(3))


def _writes_into_one_element(own: Model, x: Tensor) -> Tensor:
    own.one.add_(1)
    return x * own.one


def _writes_through_data(own: Model, x: Tensor) -> Tensor:
    own.held.data[0] = 5.0
    return x * own.held


def _writes_into_an_entry(own: Model, x: Tensor) -> Tensor:
    own.dict["held"].mul_(x)
    return x * own.dict["held"]


def _writes_into_a_global(own: Model, x: Tensor) -> Tensor:
    _SHARED.add_(1)
    return x * _SHARED


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            _writes_into_one_element,
            r"aten\.add_\.Tensor at .*:\d+ writes into a tensor in the attribute 0\.one",
        ),
        (_writes_through_data, "writes into a tensor in the attribute 0.held that is neither"),
        (_writes_into_an_entry, "writes into a tensor that is neither an input, a buffer nor a parameter"),
        (_writes_into_a_global, rf"at {__file__}:\d+ writes into a tensor that is neither"),
    ],
)
def test_writes_into_plain_tensors_are_refused(step: Step, words: str) -> None:
    own = Model(step)
    with pytest.raises(CaptureError, match=words):
        torchstone.export(nn.Sequential(own), (torch.ones(3),))
    assert own.one == 1
    assert torch.equal(own.held, torch.ones(3))
    assert torch.equal(own.dict["held"], torch.ones(3))
    assert torch.equal(_SHARED, torch.zeros(3))


def test_a_failed_export_restores_attributes() -> None:
    def fails(own: Model, x: Tensor) -> Tensor:
        own.last = own.added = x
        own.list.append(x)
        own.held.add_(1)
        raise ValueError("no")

    own = Model(fails)
    before, content = dict(vars(own)), _content(own)
    with pytest.raises(CaptureError):
        torchstone.export(own, (torch.ones(3),))
    assert vars(own).keys() == before.keys()
    assert own.last is None
    assert _same(_content(own), content)
    assert torch.equal(own.held, torch.ones(3))


@pytest.mark.parametrize(
    "copied",
    [
        lambda one: one.clone(),
        lambda one: one.double(),
        lambda one: one.to(torch.float64),
        lambda one: one[None].expand(2, 3).contiguous(),
        lambda one: one.expand(2, 3).reshape(6),
    ],
)
def test_writes_into_copies_of_plain_tensors_are_not_refused(copied: Callable[[Tensor], Tensor]) -> None:
    def writes(_: Model, x: Tensor) -> Tensor:
        return copied(_SHARED).add_(x[0])

    x, model = torch.rand(3), Model(writes)
    program = torchstone.export(model, (x,))
    for _ in range(2):
        assert torch.equal(torch.as_tensor(program(x)), model(x))
    assert torch.equal(_SHARED, torch.zeros(3))
