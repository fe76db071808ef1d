"""Adaptive pooling: average and maximum over windows that cover the input evenly, and the gradients.

Window ``i`` of ``n`` over ``size`` elements begins at ``⌊i·size/n⌋`` and ends
before ``⌈(i+1)·size/n⌉``. Windows overlap where ``size`` is not a multiple of ``n``.

Not here: sliding windows, fractional max pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from ... import hlo
from ...dtypes import BOOL, FLOATING, INT32, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..misfits import other_images
from ..promotion import opmath
from ..registry import Spec, lowers
from ..taps import Taps
from ..windows import first_maximum, places
from .max_pooling import scattered

aten = namespace("aten")


def _ranges(size: hlo.Dim, count: hlo.Dim) -> Taps | None:
    """Return the elements of each window; None if the number of windows or elements is symbolic."""
    if not isinstance(size, int) or not isinstance(count, int):
        return None
    windows = numpy.arange(count, dtype=numpy.int64)
    return Taps.ranges(windows * size // max(count, 1), -(-(windows + 1) * size // max(count, 1)))


def _in_windows(shape: Sequence[hlo.Dim], axis: int) -> tuple[Value, Value]:
    """Return which elements (``axis + 1`` of ``shape``) each window (``axis``) contains, and how many."""
    count, size = (
        hlo.broadcast_to(hlo.convert(hlo.dim_scalar(dim), INT64), shape) for dim in shape[axis : axis + 2]
    )
    window, place = (hlo.iota(shape, one, INT64) for one in (axis, axis + 1))
    begin, end = hlo.divide(window * size, count), hlo.divide((window + 1) * size + count - 1, count)
    return (place >= begin) & (place < end), end - begin


@lowers(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default, dtypes=FLOATING)
def _adaptive_avg_pool(self: Value, output_size: Sequence[int], out: Spec) -> Value:
    """Mean of each window over the last two or three axes."""
    result = hlo.convert(self, opmath(self.dtype))
    for axis, count in enumerate(output_size, self.rank - len(output_size)):
        result = _averages(result, axis, count)
    return hlo.convert(result, out.dtype)


def _averages(x: Value, axis: int, count: int) -> Value:
    size = x.shape[axis]
    if count and hlo.same_dim(size % count, 0):  # the windows do not overlap
        elements = size // count
        parts = hlo.reshape(x, [*x.shape[:axis], count, elements, *x.shape[axis + 1 :]])
        total = hlo.reduce_sum(parts, [axis + 1])
        number = hlo.convert(hlo.dim_scalar(elements), x.dtype)
        return total / hlo.broadcast_to(number, total.shape)
    taps = _ranges(size, count)
    if taps is not None:
        return taps.scaled(1 / taps.used.sum(1)).apply(x, axis)
    return hlo.reduce_sum(_shares(_for_each(x, axis, count), axis), [axis + 1])


def _shares(windows: Value, axis: int) -> Value:
    """Divide each element of a window by the window's length; 0 outside of the window."""
    inside, number = _in_windows(windows.shape, axis)
    return hlo.select(inside, windows / hlo.convert(number, windows.dtype), 0)


def _for_each(x: Value, axis: int, count: hlo.Dim) -> Value:
    """Repeat ``x`` for each window, along a new axis before ``axis``."""
    shape = [*x.shape[:axis], count, *x.shape[axis:]]
    return hlo.broadcast_in_dim(x, shape, [one + (one >= axis) for one in range(x.rank)])


@lowers(aten._adaptive_avg_pool2d_backward.default, dtypes=FLOATING, refuses=other_images(2))
def _adaptive_avg_pool2d_backward(grad_output: Value, self: Value) -> Value:
    """Spread each window's gradient equally over its elements."""
    return _average_backward(grad_output, self, 2)


@lowers(aten._adaptive_avg_pool3d_backward.default, dtypes=FLOATING, refuses=other_images(3))
def _adaptive_avg_pool3d_backward(grad_output: Value, self: Value) -> Value:
    """Spread each window's gradient equally over its elements."""
    return _average_backward(grad_output, self, 3)


def _average_backward(grad: Value, x: Value, rank: int) -> Value:
    result = hlo.convert(grad, opmath(grad.dtype))
    for axis in range(x.rank - rank, x.rank):
        size = x.shape[axis]
        taps = _ranges(size, grad.shape[axis])
        if taps is not None:
            assert isinstance(size, int)
            result = taps.scaled(1 / taps.used.sum(1)).adjoint(size).apply(result, axis)
            continue
        shape = [*result.shape[: axis + 1], size, *result.shape[axis + 1 :]]
        windows = hlo.broadcast_in_dim(result, shape, [one + (one > axis) for one in range(x.rank)])
        result = hlo.reduce_sum(_shares(windows, axis), [axis])
    return hlo.convert(result, grad.dtype)


@lowers(aten.adaptive_max_pool2d.default, aten.adaptive_max_pool3d.default, dtypes=FLOATING)
def adaptive_max_pool(self: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """Maximum of each window over the last two or three axes, and its position in the plane or volume."""
    rank = len(output_size)
    value, place = self, places(self, rank)
    for axis, count in enumerate(output_size, self.rank - rank):
        taps = _ranges(self.shape[axis], count)
        used: Value | None = None
        if taps is not None:
            positions = hlo.constant(taps.positions, INT32)
            values, candidates = hlo.take(value, positions, axis), hlo.take(place, positions, axis)
            if not taps.used.all():
                used = hlo.broadcast_in_dim(hlo.constant(taps.used, BOOL), values.shape, [axis, axis + 1])
        else:
            values, candidates = _for_each(value, axis, count), _for_each(place, axis, count)
            used, _ = _in_windows(values.shape, axis)
        if used is not None:
            values = hlo.select(used, values, hlo.lowest(values.dtype))
            candidates = hlo.select(used, candidates, hlo.highest(candidates.dtype))
        value, place = first_maximum(values, candidates, [axis + 1])
    return value, hlo.convert(place, INT64)


@lowers(aten.adaptive_max_pool2d_backward.default, dtypes=FLOATING, refuses=other_images(2))
def adaptive_max_pool2d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    """Send the gradient of each window to the element that was its maximum."""
    return _max_backward(grad_output, self, indices, 2)


@lowers(aten.adaptive_max_pool3d_backward.default, dtypes=FLOATING, refuses=other_images(3))
def adaptive_max_pool3d_backward(grad_output: Value, self: Value, indices: Value) -> Value:
    """Send the gradient of each window to the element that was its maximum."""
    return _max_backward(grad_output, self, indices, 3)


def _max_backward(grad: Value, x: Value, indices: Value, rank: int) -> Value:
    wide = hlo.convert(grad, opmath(grad.dtype))
    return hlo.convert(scattered(wide, indices, x.shape, rank), grad.dtype)
