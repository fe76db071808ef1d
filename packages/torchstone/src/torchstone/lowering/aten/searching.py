"""Search in sorted sequences and counting by value: searchsorted, bucketize, histograms.

Not here: sorting itself (``sorting``), ``bincount`` (its size depends on data).
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import COPYABLE, INT64, REAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import NOTHING_TO_DO, at_least_1d, is_empty
from ..conditions import SORTER
from ..promotion import as_value, result_dtype
from ..registry import Spec, lowers

aten = namespace("aten")

UNSEARCHED = dict.fromkeys(COPYABLE - REAL, NOTHING_TO_DO)


def insertion_points(sequence: Value, values: Value, right: bool) -> Value:
    """Return where ``values`` would be inserted to keep ``sequence`` sorted: int64, by binary search.

    The last axis is searched; the leading axes are equal. ``right`` puts a value
    after its equals. Comparisons follow PyTorch, so NaN goes to the end.
    """
    size = sequence.shape[-1]
    if is_empty(values.shape) or hlo.same_dim(size, 0):
        return hlo.full(values.shape, 0, INT64)

    def step(_: Value, low: Value, high: Value) -> list[Value]:
        middle = (low + high) / hlo.full_like(low, 2)
        found = hlo.take_along(sequence, middle, sequence.rank - 1)
        after = ~(found > values) if right else ~(found >= values)
        open_ = low < high
        return [
            hlo.select(open_ & after, middle + 1, low),
            hlo.select(open_ & ~after, middle, high),
        ]

    low, high = hlo.full(values.shape, 0, INT64), hlo.full(values.shape, size, INT64)
    halvings = size.bit_length() if isinstance(size, int) else 63
    return hlo.fori(hlo.scalar(halvings, INT64), step, [low, high])[0]


def _search(sequence: Value, self: Any, right: bool, out: Spec) -> Value:
    dtype = result_dtype(sequence, self)
    values = at_least_1d(as_value(self, dtype))
    keys = hlo.convert(sequence, dtype)
    if keys.rank == 1:
        values = hlo.reshape(values, (values.numel,))
    return hlo.reshape(hlo.convert(insertion_points(keys, values, right), out.dtype), out.shape)


# The dtype of the result already reflects ``out_int32``.
@lowers(
    aten.searchsorted.Tensor,
    aten.searchsorted.Scalar,
    dtypes=REAL,
    gaps=UNSEARCHED,
    ignores=("out_int32",),
    values=[SORTER],
)
def searchsorted(
    sorted_sequence: Value,
    self: Any,
    *,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
    out: Spec,
) -> Value:
    """Where each element would be inserted into the last axis, sorted itself or by ``sorter``."""
    if sorter is not None and not is_empty(sorter.shape):
        sorted_sequence = hlo.take_along(sorted_sequence, sorter, sorted_sequence.rank - 1)
    return _search(sorted_sequence, self, right or side == "right", out)


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar, dtypes=REAL, gaps=UNSEARCHED, ignores=("out_int32",))
def bucketize(self: Any, boundaries: Value, *, right: bool = False, out: Spec) -> Value:
    """The bucket between sorted 1-d ``boundaries`` that contains each element."""
    return _search(boundaries, self, right, out)
