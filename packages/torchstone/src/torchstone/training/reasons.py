"""Why a training step is compiled again, for profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .numbers import Guards

_PARTS = (
    "accumulate() and a call of the step are programs of their own",
    "the state has another form: tensors, shapes, dtypes, groups, requires_grad, or which have gradients",
    "clipping, the scaler, set_to_none, nonfinite, autocast or a default of PyTorch's changed",
    "train() or eval() was called, or a module, a hook, an attribute or a value that code reads changed",
    "a setting of the optimizer that is not a number changed",
    "",  # the batch's leaves, which are compared one by one
    "the batch has another structure",
)
"""The message for each part of a program's key, used if that part differs."""
_LEAVES = 5
OF_CONSTANTS = "a tensor that code refers to has another form, or code looks at its values and it was written"


def of_key(key: Sequence[Any], known: Iterable[Sequence[Any]]) -> str:
    """Describe how ``key`` differs from the most similar of the ``known`` keys."""
    nearest = max(known, key=lambda other: sum(a == b for a, b in zip(key, other, strict=True)))
    found = []
    for place, (now, before) in enumerate(zip(key, nearest, strict=True)):
        if now == before:
            continue
        found += _leaves(now, before) if place == _LEAVES else [_PARTS[place]]
    return "; ".join(found)


def of_guards(guards: Guards, leaves: Mapping[Any, Any]) -> str:
    """Describe the numbers that the code of a step branched on and that have other values now."""
    seen = [f"{before} before, {now} now" for before, now in guards.broken(leaves)]
    return f"code of the step branches on numbers that changed: {', '.join(seen)}"


def _leaves(now: Sequence[Any], before: Sequence[Any]) -> list[str]:
    if len(now) != len(before):
        return [f"the batch has {len(now)} leaves, not {len(before)}"]
    return [
        f"leaf {place} of the batch is {_described(one)}, before it was {_described(other)}"
        for place, (one, other) in enumerate(zip(now, before, strict=True))
        if one != other
    ]


def _described(form: Any) -> str:
    match form:
        case (shape, strides, dtype, requires_grad):
            gradient = ", which requires a gradient" if requires_grad else ""
            return f"{dtype} {list(shape)} with strides {list(strides)}{gradient}"
        case (kind, value):
            return value if isinstance(value, str) and kind is not str else repr(value)
    return "a number"
