"""Minima and maxima over axes, with and without their positions.

Not here: elementwise ``maximum``/``minimum``/``clamp``, running extremes
(``scan``), order statistics.

NaN wins over every number. Among equal elements the first position counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ... import hlo
from ...dtypes import BOOLEAN, INT64, REAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axes_of, axis_of, restore
from ..composites import composed_whole
from ..factories import finish, lowers_reduction
from ..registry import Spec, lowers

aten = namespace("aten")

ORDERED = REAL | BOOLEAN
Reduce = Callable[[Value, Sequence[int]], Value]


lowers_reduction(aten.amax.default, aten.max.default, kernel=hlo.reduce_max, dtypes=ORDERED)
lowers_reduction(aten.amin.default, aten.min.default, kernel=hlo.reduce_min, dtypes=ORDERED)


@lowers(aten.aminmax.default, dtypes=ORDERED, ignores=("keepdim",))
def aminmax(self: Value, dim: int | None = None, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """The smallest and largest element over one axis or all axes."""
    axes = axes_of(dim, self.rank)
    return finish(hlo.reduce_min(self, axes), out[0]), finish(hlo.reduce_max(self, axes), out[1])


def extreme(x: Value, axis: int, reduce: Reduce) -> tuple[Value, Value]:
    """The extreme along ``axis`` and the first index where it occurs."""
    if not x.rank:
        return x, hlo.scalar(0, INT64)
    best = reduce(x, [axis])
    found = hlo.eq(x, restore(best, x.shape, [axis]))
    if x.dtype.is_floating:
        # If there is a NaN, it is the extreme, but it does not equal itself.
        found = found | hlo.is_nan(x)
    index = hlo.select(found, hlo.index_of(x, axis), hlo.highest(INT64))
    return best, hlo.reduce_min(index, [axis])


def _with_index(self: Value, dim: int, out: tuple[Spec, Spec], reduce: Reduce) -> tuple[Value, Value]:
    best, index = extreme(self, axis_of(dim, self.rank), reduce)
    return finish(best, out[0]), finish(index, out[1])


@lowers(aten.max.dim, dtypes=ORDERED, ignores=("keepdim",))
def max_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """Largest element along ``dim`` and its first index."""
    return _with_index(self, dim, out, hlo.reduce_max)


@lowers(aten.min.dim, dtypes=ORDERED, ignores=("keepdim",))
def min_dim(self: Value, dim: int, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """Smallest element along ``dim`` and its first index."""
    return _with_index(self, dim, out, hlo.reduce_min)


def _position(name: str, self: Value, dim: int | None, out: Spec, reduce: Reduce) -> Value:
    def kernel(x: Value) -> Value:
        x = hlo.reshape(x, (x.numel,)) if dim is None else x
        return finish(extreme(x, axis_of(dim or 0, x.rank), reduce)[1], out)

    kept = len(out.shape) == self.rank and self.rank > 0
    attributes = {"axis": None if dim is None else axis_of(dim, self.rank), "keepdims": kept}
    return composed_whole(name, [self], kernel, out, attributes)


@lowers(aten.argmax.default, dtypes=REAL, ignores=("keepdim",))
def argmax(self: Value, dim: int | None = None, *, out: Spec) -> Value:
    """First index of the largest element along ``dim``. If ``dim`` is None, index in row-major order."""
    return _position("argmax", self, dim, out, hlo.reduce_max)


@lowers(aten.argmin.default, dtypes=REAL, ignores=("keepdim",))
def argmin(self: Value, dim: int | None = None, *, out: Spec) -> Value:
    """First index of the smallest element along ``dim``. If ``dim`` is None, index in row-major order."""
    return _position("argmin", self, dim, out, hlo.reduce_min)
