"""Buffers that code of a step replaces: afterwards modules have the new ones, as in eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError, NotFinite, TrainingError
from training_loops import batches, eager_step

Tensor = torch.Tensor


class Keeping(nn.Module):
    """A linear layer, and a buffer that ``keep`` assigns."""

    def __init__(self, keep: Callable[[Any, Tensor], Any], kept: Tensor | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.keep = nn.Linear(8, 3), keep
        self.kept: Tensor | None
        own = None if kept is None else kept.clone()
        self.register_buffer("kept", own)
        self.register_buffer("same", own)

    def forward(self, x: Tensor) -> Tensor:
        self.keep(self, x)
        out: Tensor = self.layer(x)
        return out if self.kept is None else out + self.kept.float().mean()


def mean(module: Any, x: Tensor) -> None:
    module.kept = x.mean(0)


def running(module: Any, x: Tensor) -> None:
    module.kept = x.mean(0) if module.kept is None else 0.9 * module.kept + 0.1 * x.mean(0)


def total(module: Any, x: Tensor) -> None:
    module.kept = module.kept + x.mean()


def grown(module: Any, x: Tensor) -> None:
    module.kept = torch.cat([module.kept, x.mean(1)])


def in_turns(module: Any, x: Tensor) -> None:
    module.kept = x.mean(0) if module.kept is None else None


def registered(module: Any, x: Tensor) -> None:
    if not hasattr(module, "more"):
        module.register_buffer("more", torch.zeros(()), persistent=False)
    module.more = module.more + x.mean()
    module.kept = module.more * 2


CASES: dict[str, tuple[Callable[[Any, Tensor], None], Tensor | None, int]] = {
    "none": (mean, None, 2),
    "none, and then an average": (running, None, 2),
    "another shape": (mean, torch.zeros(2), 2),
    "a shape that could be broadcast to": (mean, torch.zeros(3, 8), 2),
    "another dtype": (total, torch.zeros((), dtype=torch.int64), 2),
    "none again": (in_turns, torch.zeros(8), 3),
    "a new shape each time": (grown, torch.zeros(0), 3),
    "a new buffer": (registered, None, 2),
    "one of two names": (total, torch.zeros(2), 2),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CASES)
def test_buffers_of_another_form(name: str) -> None:
    keep, kept, programs = CASES[name]
    model, expected = Keeping(keep, kept), Keeping(keep, kept)
    optimizer, expected_optimizer = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, expected))
    step = torchstone.compile_step(model, optimizer, F.cross_entropy)
    for inputs, targets in batches(3, size=4):
        loss = step(inputs, targets)
        torch.testing.assert_close(loss, eager_step(expected, expected_optimizer, inputs, targets))
        found, same = dict(model.named_buffers()), dict(expected.named_buffers())
        assert found.keys() == same.keys()
        torch.testing.assert_close(found, {key: value.detach() for key, value in same.items()})
        assert not any(one.requires_grad for one in found.values())
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs


def test_buffers_stay_where_a_step_is_left_out() -> None:
    model = Keeping(mean, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torchstone.compile_step(model, optimizer, F.cross_entropy, nonfinite="raise")
    inputs, targets = next(batches(1))
    with pytest.raises(NotFinite):
        step(inputs / 0, targets)
    assert model.kept is None
    step(inputs, targets)
    torch.testing.assert_close(model.kept, inputs.mean(0))


def another_parameter(module: Any, x: Tensor) -> None:
    module.layer.bias = nn.Parameter(torch.zeros(3))


def deleted(module: Any, x: Tensor) -> None:
    del module.same


REFUSED: dict[str, tuple[Callable[[Any, Tensor], None], str]] = {
    "a parameter": (another_parameter, r"another parameter in place of Linear\.bias"),
    "a deleted buffer": (deleted, r"deletes the buffer Keeping\.same"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    keep, message = REFUSED[name]
    model = Keeping(keep, torch.zeros(2))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), F.cross_entropy)
    with pytest.raises(CaptureError, match=message):
        step(*next(batches(1)))
    torch.testing.assert_close(model.state_dict(), before)


def test_a_buffer_of_another_form_is_not_exported() -> None:
    model = Keeping(mean, None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TrainingError, match="a buffer of another form in place of 'kept'"):
        torchstone.export_step(model, optimizer, F.cross_entropy, next(batches(1)))
    assert model.kept is None
