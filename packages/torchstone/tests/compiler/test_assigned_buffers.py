"""Buffers that a forward pass assigns become state of the exported program, in every module."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torchstone
from torchstone.errors import CaptureError

Tensor = torch.Tensor


class Stateful(nn.Module):
    """Calls ``step`` with itself and the input; has buffers ``p`` and ``q``, and ``cache``, which is None."""

    def __init__(self, step: Callable[[Stateful, Tensor], Tensor]) -> None:
        super().__init__()
        self.register_buffer("cache", None, persistent=False)
        self.register_buffer("p", torch.zeros(3))
        self.register_buffer("q", torch.ones(3))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


def _accumulates(own: Stateful, x: Tensor) -> Tensor:
    own.p = own.p * 0.5 + x
    return own.p * 2


def _swaps(own: Stateful, x: Tensor) -> Tensor:
    own.p, own.q = own.q, own.p + x
    return own.p * 10 + own.q


def _keeps_its_input(own: Stateful, x: Tensor) -> Tensor:
    y = own.p + x
    own.p = x
    return y


def _writes_into_an_assigned_one(own: Stateful, x: Tensor) -> Tensor:
    own.p = own.p + x
    own.q = own.p
    own.q.add_(1)
    return own.p + own.q


def _computes_once(own: Stateful, x: Tensor) -> Tensor:
    if own.cache is None:
        own.cache = torch.arange(3.0).cos()
    return x * own.cache


def _assigns_what_was_none(own: Stateful, x: Tensor) -> Tensor:
    y = x + own.q
    own.cache = y
    return y * 2


STEPS = (
    _accumulates,
    _swaps,
    _keeps_its_input,
    _writes_into_an_assigned_one,
    _computes_once,
    _assigns_what_was_none,
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__.strip("_"))
def test_later_calls_see_the_new_values(step: Callable[..., Tensor], depth: int, tmp_path: Path) -> None:
    model: nn.Module = Stateful(step)
    for _ in range(depth):
        model = nn.Sequential(nn.Identity(), model)
    eager = copy.deepcopy(model)
    before = {name: id(buffer) for name, buffer in model.named_buffers()}
    program = torchstone.export(model, (torch.ones(3),))
    assert {name: id(buffer) for name, buffer in model.named_buffers()} == before
    loaded = torchstone.load(program.save(tmp_path / "model.stone"))
    for call in range(3):
        x = torch.full((3,), call + 1.0)
        expected = eager(x.clone())
        for one in (program, loaded):
            given = x.clone()
            torch.testing.assert_close(one(given), expected)
            assert torch.equal(given, x)


def test_the_model_is_as_before_when_tracing_fails() -> None:
    def fails(own: Stateful, x: Tensor) -> Tensor:
        own.p = own.p + x
        raise ValueError("no")

    model = nn.Sequential(Stateful(fails))
    before = dict(model.named_buffers())
    with pytest.raises(CaptureError):
        torchstone.export(model, (torch.ones(3),))
    assert all(buffer is before[name] for name, buffer in model.named_buffers())


def _grows(own: Stateful, x: Tensor) -> Tensor:
    own.p = torch.cat([own.p, x])
    return own.p.sum()


def _converts(own: Stateful, x: Tensor) -> Tensor:
    own.p = (own.p + x).double()
    return own.p


def _removes(own: Stateful, x: Tensor) -> Tensor:
    own.p = None
    return x


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (_grows, r"assigns a float32 tensor of shape \[6\] to the buffer 0\.p, which is a float32 tensor"),
        (_converts, r"assigns a float64 tensor of shape \[3\] to the buffer 0\.p"),
        (_removes, r"assigns None to the buffer 0\.p"),
    ],
)
def test_state_of_another_form_is_refused(step: Callable[..., Tensor], words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        torchstone.export(nn.Sequential(Stateful(step)), (torch.ones(3),))


def test_saved_state_that_is_none_is_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("h", None)

        def forward(self, x: Tensor) -> Tensor:
            self.h = x if self.h is None else self.h + x
            return self.h

    with pytest.raises(CaptureError, match="assigns the buffer h, which is None"):
        torchstone.export(Model(), (torch.ones(3),))


class Sharing(nn.Module):
    """Calls ``step``; its buffer ``part`` shares memory with the parameter or buffer ``whole``."""

    whole: Tensor
    part: Tensor
    apart: Tensor

    def __init__(self, step: Callable[[Sharing, Tensor], Tensor], *, trained: bool, size: int) -> None:
        super().__init__()
        self.step = step
        values = torch.zeros(6)
        if trained:
            self.whole = nn.Parameter(values)
        else:
            self.register_buffer("whole", values)
        self.register_buffer("part", values[:size])
        self.register_buffer("apart", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


def _writes_part(own: Sharing, x: Tensor) -> Tensor:
    own.part.add_(x)
    return own.whole * 2


def _assigns_part(own: Sharing, x: Tensor) -> Tensor:
    own.part = own.part + x
    return own.whole * 2


def _assigns_data_of_part(own: Sharing, x: Tensor) -> Tensor:
    own.part.data = own.part + x
    return own.whole * 2


def _writes_whole(own: Sharing, x: Tensor) -> Tensor:
    with torch.no_grad():
        own.whole[1:].add_(x)
    return own.part * 2


@pytest.mark.parametrize("size", [3, 6])
@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize(
    "step",
    [_writes_part, _assigns_part, _assigns_data_of_part, _writes_whole],
    ids=lambda step: step.__name__,
)
def test_writes_into_shared_state_are_refused(step: Callable[..., Tensor], trained: bool, size: int) -> None:
    model = Sharing(step, trained=trained, size=size)
    names = [f"the {'parameter' if trained else 'buffer'} whole", "the buffer part"]
    if step is not _writes_whole:
        names.reverse()
    place = rf" at {__file__}:\d+" if "writes" in step.__name__ else ""
    with pytest.raises(
        CaptureError, match=f"writes into {names[0]}{place}, which shares memory with {names[1]}"
    ):
        torchstone.export(model, (torch.ones(1),))
    assert torch.equal(model.whole.detach(), torch.zeros(6))
    assert model.part.data_ptr() == model.whole.data_ptr()


def test_shared_state_that_is_not_written_exports() -> None:
    def step(own: Sharing, x: Tensor) -> Tensor:
        own.apart.add_(x)
        return own.whole.sum() + own.part * own.apart

    model = Sharing(step, trained=True, size=3)
    eager = copy.deepcopy(model)
    program = torchstone.export(model, (torch.ones(1),))
    for _ in range(2):
        torch.testing.assert_close(program(torch.ones(1)), eager(torch.ones(1)).detach())
