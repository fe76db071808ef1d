"""Resampling along an axis of symbolic size: the program itself computes positions and weights.

The formulas and their precision are those of :mod:`.interpolation`.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from .. import hlo
from ..dtypes import FLOAT32, INT64, DType
from ..hlo import Dim, Value


@dataclass(frozen=True)
class SymbolicTaps:
    """Positions and weights (None: 1) for each term of a weighted sum, one per output position."""

    terms: Sequence[tuple[Value, Value | None]]

    def apply(self, x: Value, axis: int) -> Value:
        """The weighted sums of ``x`` along ``axis``."""
        return functools.reduce(operator.add, (_weighed(x, axis, *term) for term in self.terms))


def _weighed(x: Value, axis: int, positions: Value, weights: Value | None) -> Value:
    taken = hlo.take(x, positions, axis)
    if weights is None:
        return taken
    return taken * hlo.broadcast_in_dim(hlo.convert(weights, taken.dtype), taken.shape, [axis])


def nearest(size: Dim, count: Dim, scale: float | None, *, exact: bool) -> SymbolicTaps:
    """See :func:`.interpolation.nearest`."""
    index = hlo.iota((count,), 0, FLOAT32) + (0.5 if exact else 0.0)
    scaled = index * _step(size, count, scale, False, FLOAT32)
    return SymbolicTaps([(hlo.minimum(hlo.convert(hlo.floor(scaled), INT64), _last(size, count)), None)])


def linear(size: Dim, count: Dim, align_corners: bool, scale: float | None, dtype: DType) -> SymbolicTaps:
    """See :func:`.interpolation.linear`."""
    source = _sources(size, count, align_corners, scale, dtype)
    last = _last(size, count)
    below, fraction = _split(hlo.maximum(source, hlo.zeros_like(source)), last)
    return SymbolicTaps([(below, 1 - fraction), (hlo.minimum(below + 1, last), fraction)])


def cubic(size: Dim, count: Dim, align_corners: bool, scale: float | None, dtype: DType) -> SymbolicTaps:
    """See :func:`.interpolation.cubic`."""
    last = _last(size, count)
    below, fraction = _split(_sources(size, count, align_corners, scale, dtype), last)
    weights = [_far(fraction + 1), _near(fraction), _near(1 - fraction), _far(2 - fraction)]
    places = [hlo.clamp(0, below + offset, last) for offset in (-1, 0, 1, 2)]
    return SymbolicTaps(list(zip(places, weights, strict=True)))


_A = -0.75


def _near(x: Value) -> Value:
    return ((_A + 2) * x - (_A + 3)) * x * x + 1


def _far(x: Value) -> Value:
    return ((_A * x - 5 * _A) * x + 8 * _A) * x - 4 * _A


def _step(size: Dim, count: Dim, scale: float | None, align_corners: bool, dtype: DType) -> Value:
    """Distance between neighboring output elements, in input elements, for each output element."""
    total, made = (hlo.convert(hlo.dim_scalar(dim), dtype) for dim in (size, count))
    if align_corners:
        one = hlo.scalar(1, dtype)
        step = hlo.select(made > one, (total - one) / hlo.maximum(made - one, one), hlo.zeros_like(one))
    elif scale is not None and scale > 0:
        step = hlo.scalar(1 / scale, dtype)
    else:
        step = total / made
    return hlo.broadcast_in_dim(step, (count,), [])


def _sources(size: Dim, count: Dim, align_corners: bool, scale: float | None, dtype: DType) -> Value:
    """Input coordinate of each output element."""
    step = _step(size, count, scale, align_corners, dtype)
    index = hlo.iota((count,), 0, dtype)
    return step * index if align_corners else step * (index + 0.5) - 0.5


def _split(source: Value, last: Value) -> tuple[Value, Value]:
    """The element at or below each coordinate, and how far beyond it the coordinate lies, in [0, 1]."""
    below = hlo.minimum(hlo.convert(hlo.floor(source), INT64), last)
    return below, hlo.clamp(0.0, source - hlo.convert(below, source.dtype), 1.0)


def _last(size: Dim, count: Dim) -> Value:
    """Repeat the input's last position for each output element."""
    return hlo.broadcast_in_dim(hlo.dim_scalar(size) - 1, (count,), [])
