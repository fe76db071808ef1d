"""Writing single elements at positions given by tensors: index_put and the scatter operators.

Not here: reading (``gathering``), whole slices (``index_updates``), masks
(``masking``).

If several elements are written to one place, 16-bit floats are combined in float32 and
rounded once. The order depends on the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ... import hlo
from ...dtypes import BOOL, BOOLEAN, COPYABLE, INT64, REAL, STANDARD, UINT8, DType
from ...hlo import Number, Value
from ...torch_internals.operators import namespace
from ..checks import DROPPED, IndexRule, along
from ..common import NOTHING_TO_DO, at_least_1d, axis_of, is_empty
from ..conditions import WRITTEN
from ..promotion import opmath
from ..registry import lowers
from .gathering import like_index, positions
from .masking import ordinal

aten = namespace("aten")

Combine = Callable[[Value, Value], Value]
Write = Callable[[Value, Value, Combine], Value]
"""Combines updates (second argument) into a value (first argument) at the function's own positions."""


def assign(_: Value, new: Value) -> Value:
    """Return the newer of two elements."""
    return new


def add(a: Value, b: Value) -> Value:
    """Sum; logical or for bools."""
    return a | b if a.dtype.is_bool else a + b


def multiply(a: Value, b: Value) -> Value:
    """Product; logical and for bools."""
    return a & b if a.dtype.is_bool else a * b


_COMBINE: dict[str, Combine] = {
    "add": add,
    "sum": add,
    "mean": add,
    "multiply": multiply,
    "prod": multiply,
    "amax": hlo.maximum,
    "amin": hlo.minimum,
}


def identity(reduce: str, dtype: DType) -> Number:
    """The identity element of the reduction."""
    if reduce in ("prod", "multiply"):
        return 1
    if reduce in ("amax", "amin"):
        return hlo.lowest(dtype) if reduce == "amax" else hlo.highest(dtype)
    return 0


def combined(self: Value, source: Value, write: Write, combine: Combine) -> Value:
    """Combine ``source`` into ``self``, in float32 for 16-bit floats."""
    wide = opmath(self.dtype)
    return hlo.convert(write(hlo.convert(self, wide), hlo.convert(source, wide), combine), self.dtype)


def reduced(self: Value, source: Value, write: Write, reduce: str, include_self: bool) -> Value:
    """Compute ``scatter_reduce`` or ``index_reduce``; places without updates keep ``self``.

    The mean of integers is rounded down (aten/native/TensorAdvancedIndexing.cpp).
    """
    combine = _COMBINE[reduce]
    wide = opmath(self.dtype)
    x, updates = hlo.convert(self, wide), hlo.convert(source, wide)
    counts = write(hlo.full(x.shape, 0, INT64), hlo.full(updates.shape, 1, INT64), add)
    touched = counts > 0
    start = x if include_self else hlo.select(touched, identity(reduce, wide), x)
    result = write(start, updates, combine)
    if reduce == "mean":
        divisor = counts + 1 if include_self else hlo.maximum(counts, 1)
        result = _divide_down(result, hlo.convert(divisor, wide))
    return hlo.convert(hlo.select(touched, result, x), self.dtype)


def _divide_down(a: Value, b: Value) -> Value:
    """``a / b`` for positive ``b``; integers round toward −∞."""
    quotient = a / b
    if not a.dtype.is_integer or a.dtype.is_unsigned:
        return quotient
    inexact = hlo.ne(quotient * b, a)
    return hlo.select(inexact & (a < 0), quotient - 1, quotient)


# index_put ------------------------------------------------------------------------


def _refuses_mixed_masks(arguments: Mapping[str, Any]) -> str | None:
    given = [index for index in arguments["indices"] if index is not None]
    if len(given) > 1 and any(index.dtype in (torch.bool, torch.uint8) for index in given):
        return "a bool mask beside another index tensor is not supported; write it with torch.where"
    return None


@lowers(
    aten.index_put.default,
    aten._unsafe_index_put.default,
    dtypes=COPYABLE,
    refuses=_refuses_mixed_masks,
    indices=IndexRule("indices", along, DROPPED, negative=True),
    values=[WRITTEN],
)
def index_put(self: Value, indices: list[Value | None], values: Value, accumulate: bool = False) -> Value:
    """``self`` after ``self[indices] = values`` (``+=`` if ``accumulate``); an index may be a bool mask."""
    if is_empty(self.shape) or is_empty(values.shape):
        return self
    combine = add if accumulate else assign
    axis = next((axis for axis, index in enumerate(indices) if index is not None), None)
    if axis is None:
        return combine(self, hlo.broadcast_to(values, self.shape))
    mask = indices[axis]
    if mask is not None and mask.dtype in (BOOL, UINT8):
        return _put_mask(self, axis, hlo.convert(mask, BOOL), values, combine)
    where = positions(self.shape, indices)
    if is_empty(where.shape):
        return self

    def write(x: Value, source: Value, body: Combine) -> Value:
        return hlo.scatter(
            [x],
            where.starts,
            [source],
            body,
            update_window=where.offset_dims,
            inserted=where.axes,
            to_operand=where.axes,
            index_vector_dim=where.starts.rank - 1,
        )[0]

    return combined(self, hlo.broadcast_to(values, where.shape), write, combine)


def _put_mask(self: Value, axis: int, mask: Value, values: Value, combine: Combine) -> Value:
    """``index_put`` with a mask over the axes from ``axis`` on.

    Places outside the mask keep ``self``. The n-th place that the mask selects gets element n of
    ``values``, or its only element.
    """
    span = range(axis, axis + mask.rank)
    held = hlo.broadcast_in_dim(mask, self.shape, span)
    place = values.rank - (self.rank - span.stop) - 1  # the axis of ``values`` for the mask's places
    if place >= 0 and hlo.same_dim(values.shape[place], 1):
        values = hlo.squeeze(values, [place])
        values = hlo.expand_dims(values, range(place, place + mask.rank))
    elif place >= 0:
        values = hlo.take(values, hlo.reshape(ordinal(mask), mask.shape), place)
    return hlo.select(held, combine(self, hlo.broadcast_to(values, self.shape)), self)


# scatter along an axis --------------------------------------------------------------


def _along(axis: int, index: Value) -> Write:
    """Return a function that writes an element along ``axis`` for each of ``index``.

    ``index`` may be smaller than the value.
    """

    def write(x: Value, source: Value, combine: Combine) -> Value:
        corner = like_index(x, index, axis)
        written = hlo.put_along(corner, index, source, axis, combine)
        if hlo.same_shape(corner.shape, x.shape):
            return written
        return hlo.dynamic_update_slice(x, written, [hlo.scalar(0, INT64)] * x.rank)

    return write


def _scattered(
    self: Value, dim: int, index: Value, src: Any, apply: Callable[[Value, Value, Write], Value]
) -> Value:
    """Run ``apply(x, source, write)`` on the operands of a scatter, with 0-d operands made 1-d."""
    if is_empty(index.shape) or is_empty(self.shape):
        return self
    axis = axis_of(dim, self.rank)
    x, index = at_least_1d(self), at_least_1d(index)
    if isinstance(src, Value):
        src = at_least_1d(src)
        source = hlo.slice_(src, [0] * src.rank, index.shape)
    else:
        source = hlo.full(index.shape, src, self.dtype)
    return hlo.reshape(apply(x, source, _along(axis, index)), self.shape)


@lowers(aten.scatter.src, dtypes=COPYABLE, indices=IndexRule("index", along, DROPPED))
def scatter_src(self: Value, dim: int, index: Value, src: Value) -> Value:
    """``self`` with elements of ``src`` written at ``index`` along ``dim``."""
    return _scattered(self, dim, index, src, lambda x, source, write: write(x, source, assign))


@lowers(aten.scatter.value, dtypes=COPYABLE, indices=IndexRule("index", along, DROPPED))
def scatter_value(self: Value, dim: int, index: Value, value: Any) -> Value:
    """``self`` with one number written at ``index`` along ``dim``."""
    return _scattered(self, dim, index, value, lambda x, source, write: write(x, source, assign))


@lowers(
    aten.scatter_add.default,
    dtypes=STANDARD,
    gaps=dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def scatter_add(self: Value, dim: int, index: Value, src: Value) -> Value:
    """``self`` with elements of ``src`` added at ``index`` along ``dim``."""
    return _scattered(self, dim, index, src, lambda x, source, write: combined(x, source, write, add))


@lowers(
    aten.scatter.reduce,
    dtypes=STANDARD,
    gaps=dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def scatter_reduce_src(self: Value, dim: int, index: Value, src: Value, *, reduce: str) -> Value:
    """``self`` with elements of ``src`` added or multiplied at ``index`` along ``dim``."""
    combine = _COMBINE[reduce]
    return _scattered(self, dim, index, src, lambda x, source, write: combined(x, source, write, combine))


@lowers(
    aten.scatter.value_reduce,
    dtypes=STANDARD,
    gaps=dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def scatter_reduce_value(self: Value, dim: int, index: Value, value: Any, *, reduce: str) -> Value:
    """``self`` with one number added or multiplied at ``index`` along ``dim``."""
    combine = _COMBINE[reduce]
    return _scattered(self, dim, index, value, lambda x, source, write: combined(x, source, write, combine))


@lowers(
    aten.scatter_reduce.two,
    dtypes=REAL | BOOLEAN,
    gaps=dict.fromkeys(COPYABLE - (REAL | BOOLEAN), NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def scatter_reduce(
    self: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """``self`` with ``src`` reduced into it at ``index`` along ``dim`` (sum, prod, mean, amax, amin)."""
    return _scattered(
        self, dim, index, src, lambda x, source, write: reduced(x, source, write, reduce, include_self)
    )
