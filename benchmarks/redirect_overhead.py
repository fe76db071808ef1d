"""How much more one PyTorch call costs inside a redirection.

Outside, a redirection costs nothing by construction: the patched names are the same objects as before
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
"""How much more a call inside the scope may cost than the same call outside."""

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
"""The calls by name. A call that only a redirected process can make is compared with its twin outside."""

_TWINS = {
    "torch.empty(8, device=0)": 'torch.empty(8, device="cpu")',
    'torch.empty(8, device="cuda")': 'torch.empty(8, device="cpu")',
}


_REPETITIONS = 2000
"""How many calls run in one scope, so that entering and leaving it does not count."""


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
    """Return the seconds of one call, for candidates that make many calls."""
    return {name: seconds / _REPETITIONS for name, seconds in paired(candidates, budget_s=1.0).items()}


def _repeated(call: Callable[[], object]) -> Callable[[], None]:
    def run() -> None:
        for _ in range(_REPETITIONS):
            call()

    return run


class _Empty(TorchFunctionMode):
    """A mode that does nothing. It shows what any mode costs."""

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
