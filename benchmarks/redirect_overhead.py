"""What one PyTorch call costs more inside a redirection.

Outside it costs nothing by construction: the patched names are the identical objects as before
(``tests/redirect/test_patches.py``) and no mode is on PyTorch's stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

import torchstone

from .measure import Row, paired

MOST_MICROSECONDS = 8.0
"""What a call inside the scope may cost over the same call outside."""

x = torch.randn(8)

CALLS: dict[str, Callable[[], object]] = {
    "x + x": lambda: x + x,
    "torch.add(x, x)": lambda: torch.add(x, x),
    "x.sum()": lambda: x.sum(),
    "x.device": lambda: x.device,
    'torch.empty(8, device="cpu")': lambda: torch.empty(8, device="cpu"),
    "torch.empty(8, device=0)": lambda: torch.empty(8, device=0),
    'torch.empty(8, device="cuda")': lambda: torch.empty(8, device="cuda"),
    "x.to(device, dtype)": lambda: x.to("cpu", torch.float32),
}
"""Calls by name; those that only a redirected process can make have a twin outside."""

_TWINS = {
    "torch.empty(8, device=0)": 'torch.empty(8, device="cpu")',
    'torch.empty(8, device="cuda")': 'torch.empty(8, device="cpu")',
}


_REPETITIONS = 2000
"""Calls in one scope, so that entering and leaving it does not count."""


def rows() -> Iterator[Row]:
    for name, call in CALLS.items():
        outside = CALLS[_TWINS.get(name, name)]
        seconds = _each(
            {
                "outside": _repeated(outside),
                "empty mode": _in_mode(_repeated(outside)),
                "inside": _redirected(_repeated(call)),
            }
        )
        more = (seconds["inside"] - seconds["outside"]) * 1e6
        yield Row(
            name,
            seconds,
            "outside",
            f"inside ≤ outside + {MOST_MICROSECONDS:.0f} µs",
            more <= MOST_MICROSECONDS,
            {"over_outside_us": round(more, 2)},
        )
    seconds = paired({"enter and leave": _redirected(lambda: None)})
    yield Row("a scope", seconds, "enter and leave")


def _each(candidates: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of one call, of candidates that make many."""
    return {name: seconds / _REPETITIONS for name, seconds in paired(candidates, budget_s=1.0).items()}


def _repeated(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_REPETITIONS):
            call()

    return run


class _Empty(TorchFunctionMode):
    """What any mode costs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _in_mode(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with _Empty():
            work()

    return run


def _redirected(work: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        with torchstone.redirected(target="cpu"):
            work()

    return run
