"""Sizes that no memory has: one clear error each, where XLA would end the process."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import CaptureError, UnsupportedShape

ROW, IMAGE = torch.ones(1), torch.ones(1, 1, 4, 4)
HUGE = 2**61

TOO_LARGE: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "expand": (lambda x: x.expand(HUGE).sum(), ROW),
    "as_strided": (lambda x: x.as_strided((HUGE,), (0,)).sum(), ROW),
    "padding of a convolution": (lambda x: F.conv2d(x, x, padding=HUGE, stride=HUGE), IMAGE),
    "dilation": (
        lambda x: F.conv2d(x, x[:, :, :2, :2], padding=2**40, dilation=2**40, stride=2**40),
        IMAGE,
    ),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_values_that_cannot_be_addressed(name: str) -> None:
    function, example = TOO_LARGE[name]
    place = r"^aten\.\w+\.default at .*test_hostile_sizes\.py:\d+: a value of \w+\[.*\] has 2\^62 bytes"
    with pytest.raises(UnsupportedShape, match=place + r"(?s:.*)\n  next: correct the sizes"):
        torchstone.export(function, (example,))


def test_windows_that_cannot_be_written_out() -> None:
    with pytest.raises(
        UnsupportedShape, match=r"max_pool2d.*:\d+: a program for these sizes does not fit in"
    ):
        torchstone.export(lambda x: F.max_pool2d(x, 2**40, padding=2**39), (IMAGE,))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.full((HUGE,), 1.0)[:1] + x,
        lambda x: x.repeat(HUGE)[:1],
        lambda x: torch.arange(2**62)[:1] + x,
        lambda x: F.pad(x, (HUGE, 0))[:1],
        lambda x: torch.zeros(2**31, 2**31, 2**31)[0, 0, :1] + x,
    ],
    ids=["full", "repeat", "arange", "pad", "zeros"],
)
def test_memory_that_eager_refuses(function: Any) -> None:
    with pytest.raises(CaptureError, match=re.escape("Storage size calculation overflowed")):
        torchstone.export(function, (ROW,))


def test_large_views_of_which_little_is_read() -> None:
    program = torchstone.export(lambda x: x.expand(2**50)[:2] + 1, (ROW,))
    assert program(ROW).tolist() == [2.0, 2.0]
