"""Leaves out the last element of a reduction, and knows the reduced axis of each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ..core.case import TestCase

Array = NDArray[Any]
Place = tuple[int, int]
"""The index of an input, and one of its axes."""

_BY_OPERATOR: dict[str, Callable[[TestCase], Place]] = {
    "gemm": lambda case: (0, 0 if case.attributes["transpose_a"] else 1),
    "addmm": lambda case: (1, -1),
    "baddbmm": lambda case: (1, -1),
    "scatter_add": lambda case: (2, case.attributes["dim"]),
    "scatter_reduce": lambda case: (2, case.attributes["dim"]),
    "index_add": lambda case: (2, case.attributes["dim"]),
    "embedding_bag": lambda case: (0, -1),
    "batch_norm": lambda case: (0, 0),
    "group_norm": lambda case: (0, 1),
    "local_response_norm": lambda case: (0, 1),
    "nll_loss": lambda case: (0, 0),
}
_BY_CATEGORY: dict[str, Callable[[TestCase], Place]] = {
    "convolution": lambda case: (1, -1 if case.shapes["input1"][-1] > 1 else 1),
    "attention": lambda case: (2, -2),
}
_NO_SUM = ("outer",)
"""Matrix products whose elements are single products, not sums."""
_SHRINKING = ("reduction",)
"""Categories whose result keeps its shape if the reduced dimension is one shorter."""


def reduced_axis(case: TestCase) -> Place | None:
    """Return the input and axis along which the operator sums or compares; None if there is none."""
    if "reduction" not in case.descriptor.tags or case.op in _NO_SUM:
        return None
    find = _BY_OPERATOR.get(case.op) or _BY_CATEGORY.get(case.descriptor.category)
    which, axis = find(case) if find else (0, _dimension(case.attributes.get("dim")))
    rank = len(case.shapes[case.descriptor.inputs[which]])
    return (which, axis % rank) if rank else None


def _dimension(dim: Any) -> int:
    if isinstance(dim, tuple):
        return int(dim[-1]) if dim else -1
    return -1 if dim is None else int(dim)


def truncated(run: Any, case: TestCase, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Return the outputs computed without the last element of the reduced axis.

    A reduction gets one element less; any other operator gets zeros in place of that element.
    """
    place = reduced_axis(case)
    if place is None:
        return tuple(run(case, inputs))
    which, axis = place
    values = inputs[which]
    if values.shape[axis] < 2 or not math.prod(values.shape):
        return tuple(run(case, inputs))
    changed = list(inputs)
    if case.descriptor.category in _SHRINKING or case.op == "embedding_bag":
        changed[which] = np.take(values, range(values.shape[axis] - 1), axis)
        name = case.descriptor.inputs[which]
        return tuple(run(replace(case, shapes={**case.shapes, name: changed[which].shape}), changed))
    changed[which] = values.copy()
    changed[which][(slice(None),) * axis + (-1,)] = 0
    return tuple(run(case, changed))
