"""Sorting, and results taken from a sorted axis: topk, kthvalue, median, mode.

NaN is larger than every number. Every sort is stable. Where PyTorch does not define
which index of equal elements to return, the first one counts.
Not here: search in sorted sequences (``searching``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import BOOLEAN, COPYABLE, INT64, REAL, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import NOTHING_TO_DO, at_least_1d, axis_of, flatten, is_empty
from ..ordering import first_equal, first_in_order, key_of_rank, nan_key, order_key, sorted_with_indices
from ..registry import Spec, lowers

aten = namespace("aten")

SORTABLE = REAL | BOOLEAN | UNSIGNED
"""The dtypes that have an order; complex numbers have none."""
UNSORTABLE = dict.fromkeys(COPYABLE - SORTABLE, NOTHING_TO_DO)
UNRANKED = dict.fromkeys(COPYABLE - REAL, NOTHING_TO_DO)


@lowers(aten.sort.default, aten.sort.stable, dtypes=SORTABLE, gaps=UNSORTABLE, ignores=("stable",))
def sort(self: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    """Sort elements along an axis, and return their former positions."""
    x = at_least_1d(self)
    values, indices = sorted_with_indices(x, axis_of(dim, x.rank), descending)
    return hlo.reshape(values, self.shape), hlo.reshape(indices, self.shape)


# The result is always sorted: ``sorted=False`` allows any order.
@lowers(aten.topk.default, dtypes=REAL, gaps=UNRANKED, ignores=("sorted",))
def topk(
    self: Value, k: int, dim: int = -1, largest: bool = True, *, out: tuple[Spec, Spec]
) -> tuple[Value, Value]:
    """The ``k`` largest or smallest elements of an axis in order, and their positions."""
    x = at_least_1d(self)
    axis = axis_of(dim, x.rank)
    return _picked(x, first_in_order(order_key(x, descending=largest), axis, k), axis, out)


def _picked(x: Value, at: Value, axis: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """Take the elements of ``x`` at positions along ``axis``; return both in the shapes of ``out``."""
    return hlo.reshape(hlo.take_along(x, at, axis), out[0].shape), hlo.reshape(at, out[1].shape)


def _only_one(x: Value, axis: int) -> list[hlo.Dim]:
    return [1 if i == axis else dim for i, dim in enumerate(x.shape)]


def _nothing(out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    return hlo.full(out[0].shape, 0, out[0].dtype), hlo.full(out[1].shape, 0, out[1].dtype)


@lowers(aten.kthvalue.default, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def kthvalue(self: Value, k: int, dim: int = -1, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The ``k``-th smallest element of an axis (counted from 1) and its position."""
    x = at_least_1d(self)
    if is_empty(out[0].shape):
        return _nothing(out)
    axis = axis_of(dim, x.rank)
    keys, rank = order_key(x), hlo.full(_only_one(x, axis), k - 1, INT64)
    return _picked(x, first_equal(keys, key_of_rank(x, rank, axis), axis), axis, out)


def _median(x: Value, axis: int, ignore_nan: bool) -> Value:
    """Return the index of the lower median along ``axis``, which keeps size 1.

    If there is a NaN, it is the median, unless NaNs are ignored and there are other elements.
    """
    size, keys = x.shape[axis], order_key(x)
    middle = hlo.full(_only_one(x, axis), (size - 1) // 2, INT64)
    if x.dtype.is_floating and ignore_nan:
        nans = hlo.reduce_sum(hlo.convert(hlo.is_nan(x), INT64), [axis])
        nans = hlo.reshape(nans, middle.shape)
        middle = hlo.maximum(size - 1 - nans, 0) / hlo.full_like(nans, 2)
    key = key_of_rank(x, middle, axis)
    missing = nan_key(x.dtype) if x.dtype.is_floating and not ignore_nan else None
    return first_equal(keys, key, axis, rather=missing)


def _median_of(self: Value, dim: int, out: tuple[Spec, Spec], ignore_nan: bool) -> tuple[Value, Value]:
    x = at_least_1d(self)
    if is_empty(out[0].shape):
        return _nothing(out)
    axis = axis_of(dim, x.rank)
    return _picked(x, _median(x, axis, ignore_nan), axis, out)


@lowers(aten.median.dim, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def median_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The lower median of an axis and its position; NaN if the axis has one."""
    return _median_of(self, dim, out, ignore_nan=False)


@lowers(aten.nanmedian.dim, dtypes=REAL, gaps=UNRANKED, ignores=("keepdim",))
def nanmedian_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The lower median of an axis without its NaNs, and its position."""
    return _median_of(self, dim, out, ignore_nan=True)


def _median_of_all(self: Value, ignore_nan: bool) -> Value:
    if is_empty(self.shape):
        return hlo.scalar(float("nan"), self.dtype)
    x = flatten(self)
    found = hlo.reshape(hlo.take_along(x, _median(x, 0, ignore_nan), 0), ())
    if isinstance(x.shape[0], int):
        return found
    return hlo.select(hlo.eq(hlo.full((), x.shape[0], INT64), 0), hlo.scalar(float("nan"), self.dtype), found)


@lowers(aten.median.default, dtypes=REAL, gaps=UNRANKED)
def median(self: Value) -> Value:
    """The lower median of all elements; NaN if any element is NaN."""
    return _median_of_all(self, ignore_nan=False)


@lowers(aten.nanmedian.default, dtypes=REAL, gaps=UNRANKED)
def nanmedian(self: Value) -> Value:
    """The lower median of all elements that are not NaN."""
    return _median_of_all(self, ignore_nan=True)


@lowers(aten.mode.default, dtypes=SORTABLE, gaps=UNSORTABLE, ignores=("keepdim",))
def mode(self: Value, dim: int = -1, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The most frequent element of an axis (the smallest of ties) and its last position.

    NaN is larger than every number, and occurs once at each of its positions.
    """
    x = at_least_1d(self)
    if is_empty(out[0].shape):
        return _nothing(out)
    axis = axis_of(dim, x.rank)
    values, indices = sorted_with_indices(x, axis)
    size = x.shape[axis]
    place = hlo.index_of(values, axis)
    previous = hlo.concatenate(
        [hlo.slice_axis(values, axis, 0, 1), hlo.slice_axis(values, axis, 0, size - 1)], axis
    )
    # The length of the run of equal elements that ends here; its start is a running maximum.
    starts = hlo.select(hlo.ne(values, previous), place, hlo.zeros_like(place))
    begin = hlo.associative_scan([starts], axis, hlo.maximum)[0]
    length = place - begin

    def longer(best: Value, at: Value, other: Value, where: Value) -> list[Value]:
        better = (other > best) | (hlo.eq(other, best) & (where < at))
        return [hlo.select(better, other, best), hlo.select(better, where, at)]

    _, last = hlo.reduce([length, place], [-1, hlo.highest(INT64)], [axis], longer)
    return _picked(x, hlo.take_along(indices, hlo.expand_dims(last, [axis]), axis), axis, out)
