"""Writes through ``tensor.data`` in a forward pass are a part of the exported program."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor
Step = Callable[["Model", Tensor], Any]


class Model(nn.Module):
    """Calls ``step`` with itself and the input; has a parameter, two buffers and a plain tensor."""

    p: Tensor
    q: Tensor

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("p", torch.zeros(3))
        self.register_buffer("q", torch.ones(3))
        self.plain = torch.ones(3)
        self.step = step

    def forward(self, x: Tensor) -> Any:
        return self.step(self, x)


def _assigns_a_buffer(own: Model, x: Tensor) -> Any:
    own.p.data = own.p + x
    return own.p * 2


def _assigns_a_parameter(own: Model, x: Tensor) -> Any:
    own.weight.data = own.weight.data / own.weight.data.norm()
    return own.weight * x


def _assigns_a_new_parameter(own: Model, x: Tensor) -> Any:
    own.weight = nn.Parameter(own.weight * 2)
    return own.weight * x


def _writes_into_a_buffer(own: Model, x: Tensor) -> Any:
    own.p.data.add_(1)
    own.p.data[1] = 5.0
    own.q.data.copy_(x)
    return own.p * own.q


def _writes_into_a_parameter(own: Model, x: Tensor) -> Any:
    data = own.weight.data
    data += x
    return own.weight * 2


def _writes_into_an_input(own: Model, x: Tensor) -> Any:
    x.data.mul_(3)
    return x + own.p


def _assigns_an_input(own: Model, x: Tensor) -> Any:
    x.data = x + 1
    return x * 2


def _assigns_a_computed_tensor(own: Model, x: Tensor) -> Any:
    y = x * 2
    y.data = torch.cat([y, x])
    return y * 3


def _keeps_views_of_the_old_memory(own: Model, x: Tensor) -> Any:
    view = own.p[:2]
    own.p.data = own.p + x
    own.p.add_(1)
    return view, view * 2, own.p


def _returns_the_old_buffer(own: Model, x: Tensor) -> Any:
    old = own.p
    own.p = old + x
    return old, old[1:]


def _shares_the_memory_of_the_value(own: Model, x: Tensor) -> Any:
    y = x * 2
    own.p.data = y
    own.p.add_(1)
    y.mul_(2)
    return y, own.p * 2


def _swaps(own: Model, x: Tensor) -> Any:
    own.p.data, own.q.data = own.q.data, own.p.data + x
    return own.p * 10 + own.q


def _assigns_both_ways(own: Model, x: Tensor) -> Any:
    own.p.data = own.p * 2 + x
    own.p = own.p + 1
    return own.p


def _assigns_constants(own: Model, x: Tensor) -> Any:
    own.p.data = own.plain
    y = torch.tensor([1.0, 2.0, 3.0])
    y.data.mul_(2)
    return own.p + x + y


STEPS = (
    _assigns_a_buffer,
    _assigns_a_parameter,
    _assigns_a_new_parameter,
    _writes_into_a_buffer,
    _writes_into_a_parameter,
    _writes_into_an_input,
    _assigns_an_input,
    _assigns_a_computed_tensor,
    _keeps_views_of_the_old_memory,
    _returns_the_old_buffer,
    _shares_the_memory_of_the_value,
    _swaps,
    _assigns_both_ways,
    _assigns_constants,
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_writes_through_data_are_those_of_eager_pytorch(step: Step, depth: int, tmp_path: Path) -> None:
    model: nn.Module = Model(step)
    for _ in range(depth):
        model = nn.Sequential(nn.Identity(), model)
    eager, before = copy.deepcopy(model), _members(model)
    values = {name: one.detach().clone() for name, one in before.items()}
    program = torchstone.export(model, (torch.ones(3),))
    assert all(one is before[name] for name, one in _members(model).items())
    torch.testing.assert_close(_members(model), values)
    loaded = torchstone.load(program.save(tmp_path / "model.stone"))
    for call in range(3):
        x = torch.full((3,), call + 1.0)
        given = x.clone()
        with torch.no_grad():
            expected = eager(given)
        for one in (program, loaded):
            own = x.clone()
            torch.testing.assert_close(one(own), expected)
            torch.testing.assert_close(own, given)
            state = {name: torch.as_tensor(value.copy()) for name, value in one.state().items()}
            for name, tensor in _members(eager).items():
                torch.testing.assert_close(state[name], tensor.detach())


def _members(model: nn.Module) -> dict[str, Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _grows(own: Model, x: Tensor) -> Any:
    own.p.data = torch.cat([own.p, x])
    return own.p.sum()


def _converts(own: Model, x: Tensor) -> Any:
    own.weight.data = own.weight.data.double()
    return own.weight * x


def _grows_an_input(own: Model, x: Tensor) -> Any:
    x.data = torch.cat([x, x])
    return x * 2


def _assigns_a_plain_tensor(own: Model, x: Tensor) -> Any:
    own.plain.data = own.plain + x
    return own.plain * 2


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (
            _grows,
            r"assigns a float32 tensor of shape \[6\] to the buffer p, which is a float32 tensor of shape",
        ),
        (_converts, r"assigns a float64 tensor of shape \[3\] to the parameter weight"),
        (_grows_an_input, r"assigns a float32 tensor of shape \[6\] to input 0, .*\n.*return the new value"),
        (
            _assigns_a_plain_tensor,
            rf"assigns to \.data of a tensor outside of the model at {__file__}:\d+\n.*as a buffer",
        ),
    ],
)
def test_data_that_a_program_cannot_keep_is_refused(step: Step, words: str) -> None:
    model = Model(step)
    before, plain = _members(model), model.plain
    values = copy.deepcopy({name: one.detach() for name, one in before.items()})
    with pytest.raises(CaptureError, match=words):
        torchstone.export(model, (torch.ones(3),))
    assert all(one is before[name] for name, one in _members(model).items())
    torch.testing.assert_close(_members(model), values)
    assert model.plain is plain
    assert torch.equal(plain, torch.ones(3))


def test_a_failed_export_changes_no_parameter() -> None:
    def fails(own: Model, x: Tensor) -> Any:
        with torch.no_grad():
            own.weight.mul_(2)
        own.weight.data = own.weight.data + 1
        own.weight = nn.Parameter(own.weight * 2)
        return x * float(own.weight.detach().sum())

    model = Model(fails)
    weight = model.weight
    with pytest.raises(CaptureError):
        torchstone.export(model, (torch.ones(3),))
    assert model.weight is weight
    assert torch.equal(weight.detach(), torch.tensor([1.0, 2.0, 3.0]))
