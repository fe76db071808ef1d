"""Sorting and what is read off a sorted axis: topk, kthvalue, median, mode.

NaN is larger than every number. Every sort is stable; where PyTorch leaves the
index of equal elements open, the first one counts.
Not here: search in sorted sequences (``searching``).
"""

from __future__ import annotations

import torch

from ... import hlo
from ...dtypes import BOOLEAN, COPYABLE, INT64, REAL, UNSIGNED
from ...hlo import Value
from ..common import NOTHING_TO_DO, at_least_1d, axis_of, flatten, is_empty
from ..registry import Spec, lowers

aten = torch.ops.aten

SORTABLE = REAL | BOOLEAN | UNSIGNED
"""What has an order: complex numbers have none."""
UNSORTABLE = dict.fromkeys(COPYABLE - SORTABLE, NOTHING_TO_DO)
UNRANKED = dict.fromkeys(COPYABLE - REAL, NOTHING_TO_DO)


def _before(a: Value, b: Value, descending: bool) -> Value:
    """True where ``a`` comes strictly before ``b``."""
    first = a > b if descending else a < b
    if not a.dtype.is_floating:
        return first
    late, early = (a, b) if descending else (b, a)
    return first | (hlo.is_nan(late) & ~hlo.is_nan(early))


def sorted_with_indices(x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """``x`` (1-d or more) sorted stably along ``axis``, and where each element stood (int64)."""
    values, indices = hlo.sort(
        [x, hlo.index_of(x, axis)], axis, lambda a, b, *_: _before(a, b, descending), stable=True
    )
    return values, indices


@lowers(aten.sort.default, aten.sort.stable, dtypes=SORTABLE, gaps=UNSORTABLE, ignores=("stable",))
def sort(self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """Elements in order along an axis, and their former positions."""
    x = at_least_1d(self)
    values, indices = sorted_with_indices(x, axis_of(dim, x.rank), descending)
    return hlo.reshape(values, self.shape), hlo.reshape(indices, self.shape)


# The result is sorted always: ``sorted=False`` allows any order.
@lowers(aten.topk.default, dtypes=REAL, gaps=UNRANKED, ignores=("sorted",))
def topk(
    self: Value, k: int, dim: int = -1, largest: bool = True, *, out: tuple[Spec, Spec]
) -> tuple[Value, Value]:
    """The ``k`` largest or smallest elements of an axis in order, and their positions."""
    x = at_least_1d(self)
    axis = axis_of(dim, x.rank)
    values, indices = (hlo.slice_axis(v, axis, 0, k) for v in sorted_with_indices(x, axis, largest))
    return hlo.reshape(values, out[0].shape), hlo.reshape(indices, out[1].shape)


def _at(values: tuple[Value, Value], axis: int, index: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """One index of a sorted axis, in the shapes of ``out``."""
    first, second = (hlo.slice_axis(v, axis, index, index + 1) for v in values)
    return hlo.reshape(first, out[0].shape), hlo.reshape(second, out[1].shape)


@lowers(aten.kthvalue.default, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def kthvalue(self: Value, k: int, dim: int = -1, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The ``k``-th smallest element of an axis (counted from 1) and its position."""
    x = at_least_1d(self)
    axis = axis_of(dim, x.rank)
    return _at(sorted_with_indices(x, axis), axis, k - 1, out)


def _median(x: Value, axis: int, ignore_nan: bool) -> tuple[Value, Value]:
    """The lower median along ``axis`` and its position, both with size 1 there.

    A NaN is the median unless it is ignored (all of them: then it is).
    """
    values, indices = sorted_with_indices(x, axis)
    size = x.shape[axis]
    kept = [1 if i == axis else dim for i, dim in enumerate(x.shape)]
    middle = hlo.full(kept, (size - 1) // 2, INT64)
    if x.dtype.is_floating:
        missing = hlo.convert(hlo.is_nan(x), INT64)
        nans = hlo.reshape(hlo.reduce_sum(missing, [axis]), kept)
        if ignore_nan:
            middle = hlo.maximum(size - 1 - nans, 0) / hlo.full_like(nans, 2)
        else:
            # The first NaN follows the numbers.
            middle = hlo.select(nans > 0, size - nans, middle)
    return hlo.take_along(values, middle, axis), hlo.take_along(indices, middle, axis)


def _median_of(self: Value, dim: int, out: tuple[Spec, Spec], ignore_nan: bool) -> tuple[Value, Value]:
    x = at_least_1d(self)
    if is_empty(out[0].shape):
        return hlo.full(out[0].shape, 0, out[0].dtype), hlo.full(out[1].shape, 0, out[1].dtype)
    value, index = _median(x, axis_of(dim, x.rank), ignore_nan)
    return hlo.reshape(value, out[0].shape), hlo.reshape(index, out[1].shape)


@lowers(aten.median.dim, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def median_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The lower median of an axis and its position; NaN if there is one."""
    return _median_of(self, dim, out, ignore_nan=False)


@lowers(aten.nanmedian.dim, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def nanmedian_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The lower median of an axis without its NaNs, and its position."""
    return _median_of(self, dim, out, ignore_nan=True)


def _median_of_all(self: Value, ignore_nan: bool) -> Value:
    if is_empty(self.shape):
        return hlo.scalar(float("nan"), self.dtype)
    return hlo.reshape(_median(flatten(self), 0, ignore_nan)[0], ())


@lowers(aten.median.default, dtypes=REAL, gaps=UNRANKED)
def median(self: Value) -> Value:
    """The lower median of all elements; NaN if there is one."""
    return _median_of_all(self, ignore_nan=False)


@lowers(aten.nanmedian.default, dtypes=REAL, gaps=UNRANKED)
def nanmedian(self: Value) -> Value:
    """The lower median of all elements that are not NaN."""
    return _median_of_all(self, ignore_nan=True)


@lowers(aten.mode.default, dtypes=SORTABLE, gaps=UNSORTABLE, ignores=("keepdim",))
def mode(self: Value, dim: int = -1, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The most frequent element of an axis (the smallest of several) and its last position."""
    x = at_least_1d(self)
    if is_empty(out[0].shape):
        return hlo.full(out[0].shape, 0, out[0].dtype), hlo.full(out[1].shape, 0, out[1].dtype)
    axis = axis_of(dim, x.rank)
    values, indices = sorted_with_indices(x, axis)
    size = x.shape[axis]
    place = hlo.index_of(values, axis)
    previous = hlo.concatenate(
        [hlo.slice_axis(values, axis, 0, 1), hlo.slice_axis(values, axis, 0, size - 1)], axis
    )
    # How long the run of equal elements is that ends here: its start is a running maximum.
    starts = hlo.select(hlo.ne(values, previous), place, hlo.zeros_like(place))
    begin = hlo.associative_scan([starts], axis, hlo.maximum)[0]
    length = place - begin

    def longer(best: Value, at: Value, other: Value, where: Value) -> list[Value]:
        better = (other > best) | (hlo.eq(other, best) & (where < at))
        return [hlo.select(better, other, best), hlo.select(better, where, at)]

    _, last = hlo.reduce([length, place], [-1, hlo.highest(INT64)], [axis], longer)
    kept = hlo.expand_dims(last, [axis])
    return _picked((values, indices), kept, axis, out)


def _picked(pair: tuple[Value, Value], at: Value, axis: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    first, second = (hlo.take_along(v, at, axis) for v in pair)
    return hlo.reshape(first, out[0].shape), hlo.reshape(second, out[1].shape)
