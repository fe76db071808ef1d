"""Inputs that share memory in another way than in the call that a function was compiled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.errors import FallbackRefused, FallbackWarning

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

Make = Callable[[], tuple[torch.Tensor, torch.Tensor]]


def numbers(count: int) -> torch.Tensor:
    return torch.arange(float(count))


def parts(count: int, one: slice, other: slice) -> tuple[torch.Tensor, torch.Tensor]:
    base = numbers(count)
    return base[one], base[other]


def in_two_libraries() -> tuple[torch.Tensor, torch.Tensor]:
    base = numbers(3)
    return base, torch.from_numpy(base.numpy())


MADE: dict[str, Make] = {
    "apart": lambda: (numbers(3), numbers(3)),
    "meeting": lambda: parts(4, slice(3), slice(1, 4)),
    "the other way round": lambda: parts(4, slice(1, 4), slice(3)),
    "in more memory": lambda: parts(8, slice(3), slice(1, 4)),
    "side by side": lambda: parts(6, slice(3), slice(3, 6)),
    "in turns": lambda: parts(6, slice(0, 6, 2), slice(1, 6, 2)),
    "in two libraries": in_two_libraries,
}


def write_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a.mul_(2) + b


def write_both(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a.mul_(2)
    b.add_(1)
    return a + b, b


@pytest.mark.sampled(4)
@pytest.mark.filterwarnings("ignore::torchstone.errors.FallbackWarning")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("first", ["apart", "meeting", "side by side", "in turns"])
@pytest.mark.parametrize("function", [write_one, write_both])
def test_each_call_heeds_the_memory_of_its_own_inputs(function: Any, first: str, dynamic: bool) -> None:
    compiled = torch.compile(function, backend="torchstone", dynamic=dynamic)
    for how in (first, *MADE, first):
        ours, theirs = MADE[how](), MADE[how]()
        torch.testing.assert_close((compiled(*ours), ours), (function(*theirs), theirs), msg=how)


def test_calls_in_eager_warn() -> None:
    compiled = torch.compile(write_one, backend="torchstone")
    compiled(*MADE["apart"]())
    compiled(*MADE["side by side"]())
    with pytest.warns(FallbackWarning, match="shares memory with another one"):
        compiled(*MADE["meeting"]())


def test_without_fallback_nothing_is_written() -> None:
    compiled = torch.compile(write_one, backend="torchstone", options={"fallback": False})
    compiled(*MADE["apart"]())
    a, b = MADE["meeting"]()
    with pytest.raises(FallbackRefused, match="pass copies"):
        compiled(a, b)
    assert (a.tolist(), b.tolist()) == ([0, 1, 2], [1, 2, 3])


def test_inputs_that_are_only_read_may_share_what_they_like() -> None:
    compiled = torch.compile(lambda a, b: (a + b, a[1:]), backend="torchstone", options={"fallback": False})
    for make in MADE.values():
        a, b = make()
        total, view = compiled(a, b)
        torch.testing.assert_close(total, a + b)
        assert view.data_ptr() == a[1:].data_ptr()
