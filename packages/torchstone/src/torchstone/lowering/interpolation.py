"""Positions and weights of resampling along one axis, as PyTorch's CPU kernels compute them.

See aten/src/ATen/native/UpSample.h and cpu/UpSampleKernel.cpp. Positions are
computed in the kernels' own precision, so that coordinates fall between the same
elements as there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import numpy.typing

from .taps import Taps

Array = numpy.typing.NDArray[numpy.floating]
Real = type[numpy.float32] | type[numpy.float64]


@dataclass(frozen=True)
class Filter:
    """A filter for antialiased resampling: a kernel that is zero at distances beyond ``width / 2``."""

    width: int
    kernel: Callable[[Array], Array]


def nearest(size: int, count: int, scale: float | None, *, exact: bool) -> Taps:
    """Take the element at the scaled index or, with ``exact``, the one whose center is nearest."""
    step = _scale(size, count, scale, False, numpy.float32)
    shift = numpy.float32(0.5 if exact else 0)
    index = numpy.floor((numpy.arange(count, dtype=numpy.float32) + shift) * step)
    positions = numpy.fmin(index, size - 1).astype(numpy.int64)[:, None]
    return Taps.of(positions, numpy.ones_like(positions, dtype=numpy.float32))


def copied(count: int, real: Real) -> Taps:
    """Copy every element unchanged."""
    positions = numpy.arange(count)[:, None]
    return Taps.of(positions, numpy.ones_like(positions, dtype=real))


def linear(size: int, count: int, align_corners: bool, scale: float | None, real: Real) -> Taps:
    """Weight the two neighbors by proximity."""
    if size == count:
        return copied(count, real)
    source = numpy.maximum(_sources(size, count, align_corners, scale, real), real(0))
    below, fraction = _split(source, size)
    positions = numpy.stack([below, numpy.minimum(below + 1, size - 1)], axis=1)
    return Taps.of(positions, numpy.stack([1 - fraction, fraction], axis=1))


def cubic(size: int, count: int, align_corners: bool, scale: float | None, real: Real) -> Taps:
    """Weight the four neighbors by the cubic convolution kernel with A = −0.75."""
    below, fraction = _split(_sources(size, count, align_corners, scale, real), size)
    distances = numpy.stack([fraction + 1, fraction, 1 - fraction, 2 - fraction], axis=1)
    positions = numpy.clip(below[:, None] + numpy.arange(-1, 3), 0, size - 1)
    return Taps.of(positions, _cubic_kernel(distances, real(-0.75)))


def antialiased(
    size: int, count: int, align_corners: bool, scale: float | None, real: Real, filter_: Filter
) -> Taps:
    """Weight all elements under the filter, which is stretched if the output is smaller than the input.

    ``align_corners`` changes only the step between centers, as in PyTorch.
    """
    stretch, centers, support = _windows(size, count, align_corners, scale, real, filter_)
    starts = numpy.maximum((centers - support + real(0.5)).astype(numpy.int64), 0)
    stops = numpy.minimum((centers + support + real(0.5)).astype(numpy.int64), size)
    taps = Taps.ranges(starts, stops)
    offsets = (starts - centers + real(0.5)).astype(real)
    distances = (offsets[:, None] + numpy.arange(taps.terms)) / stretch
    weights = numpy.where(taps.used, filter_.kernel(distances.astype(real)), 0)
    total = weights.sum(1, keepdims=True)
    return Taps(taps.positions, weights / numpy.where(total == 0, 1, total), taps.used)


def misses(
    size: int, count: int, align_corners: bool, scale: float | None, real: Real, filter_: Filter
) -> bool:
    """Whether the filter lies entirely beyond the input for some result of :func:`antialiased`."""
    _, centers, support = _windows(size, count, align_corners, scale, real, filter_)
    return bool((centers - support + real(0.5) >= size).any())


def _windows(
    size: int, count: int, align_corners: bool, scale: float | None, real: Real, filter_: Filter
) -> tuple[Any, Array, Any]:
    """Return the stretch of the filter, its center for each result, and half of its stretched width."""
    step = _scale(size, count, scale, align_corners, real)
    stretch = max(step, real(1))
    index: Array = numpy.arange(count, dtype=real)
    return stretch, step * (index + real(0.5)), real(filter_.width / 2) * stretch


def _triangle(x: Array) -> Array:
    return numpy.maximum(1 - numpy.abs(x), 0)


def _lanczos(x: Array) -> Array:
    return numpy.where(numpy.abs(x) < 3, numpy.sinc(x) * numpy.sinc(x / 3), 0)


def _cubic_kernel(x: Array, a: Any) -> Array:
    x = numpy.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return numpy.where(x <= 1, near, numpy.where(x < 2, far, 0))


FILTERS = {
    "bilinear": Filter(2, _triangle),
    "bicubic": Filter(4, lambda x: _cubic_kernel(x, -0.5)),
    "lanczos": Filter(6, _lanczos),
}
"""The filters of antialiased resampling, by the name of the mode."""


def _scale(size: int, count: int, scale: float | None, align_corners: bool, real: Real) -> Any:
    """Distance between neighboring output elements, measured in input elements."""
    if align_corners:
        return real(size - 1) / real(count - 1) if count > 1 else real(0)
    return real(1 / scale) if scale is not None and scale > 0 else real(size) / real(count)


def _sources(size: int, count: int, align_corners: bool, scale: float | None, real: Real) -> Array:
    """Input coordinate of each output element."""
    step = _scale(size, count, scale, align_corners, real)
    index: Array = numpy.arange(count, dtype=real)
    return step * index if align_corners else step * (index + real(0.5)) - real(0.5)


def _split(source: Array, size: int) -> tuple[numpy.typing.NDArray[numpy.int64], Array]:
    """The element at or below each coordinate, and how far beyond it the coordinate lies, in [0, 1]."""
    below = numpy.minimum(numpy.floor(source).astype(numpy.int64), size - 1)
    return below, numpy.clip(source - below, 0, 1).astype(source.dtype)
