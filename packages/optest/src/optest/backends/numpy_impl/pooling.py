"""Pooling over views of all windows of a padded input, and adaptive pooling with masks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .common import Array, Implementation, each
from .convolution import windows


def _layout(
    spatial: tuple[int, ...], kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[list[int], tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[int, int]]]:
    """Return the number of windows, kernel, stride, dilation and padding on both sides, per dimension."""
    rank = len(spatial)
    kernel, pads, gaps = each(kernel_size, rank), each(padding, rank), each(dilation, rank)
    steps = kernel if stride is None else each(stride, rank)
    counts, sides = [], []
    for size, width, step, pad, gap in zip(spatial, kernel, steps, pads, gaps, strict=True):
        reach = gap * (width - 1) + 1
        room = size + 2 * pad - reach
        count = 1 + (-(-room // step) if ceil_mode else room // step)
        if ceil_mode and (count - 1) * step - pad >= size:
            count -= 1
        needed = (count - 1) * step + reach - size - pad
        counts.append(count)
        sides.append((pad, max(needed, 0)))
    return counts, kernel, steps, gaps, sides


def _windows(values: Array, fill: Any, rank: int, **layout: Any) -> Array:
    counts, kernel, steps, gaps, sides = _layout(values.shape[-rank:], **layout)
    around = [(0, 0)] * (values.ndim - rank) + sides
    padded = np.pad(values, around, constant_values=fill)
    found = windows(padded, kernel, steps, gaps, rank)
    taken: Any = (..., *(slice(0, count) for count in counts), *(slice(None),) * rank)
    return found[taken]


def _max(rank: int) -> Implementation:
    def pool(values: Array, **layout: Any) -> Array:
        found = _windows(values, -np.inf, rank, **layout)
        return found.max(axis=tuple(range(-rank, 0)))

    return pool


def _max_with_indices(values: Array, **layout: Any) -> tuple[Array, Array]:
    found = _windows(values, -np.inf, 2, **layout)
    places = np.arange(math.prod(values.shape[-2:])).reshape(values.shape[-2:])
    numbers = _windows(places, -1, 2, **layout)
    shape = found.shape[:-2]
    lines = found.reshape(*shape, math.prod(found.shape[-2:]))
    numbered = np.broadcast_to(numbers, found.shape).reshape(lines.shape)
    largest, best = _first_largest(lines, numbered >= 0)
    return largest, np.take_along_axis(numbered, best[..., None], axis=-1)[..., 0]


def _first_largest(lines: Array, inside: Array) -> tuple[Array, Array]:
    """Return the largest value (NaN, if there is one) along the last axis, and its first index ``inside``.

    Values outside are −inf, but a value inside may be −inf as well.
    """
    largest = lines.max(axis=-1)
    best = inside & ((lines == largest[..., None]) | np.isnan(lines))
    return largest, best.argmax(axis=-1)


def _average(rank: int) -> Implementation:
    def pool(
        values: Array,
        *,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> Array:
        layout = {"kernel_size": kernel_size, "stride": stride, "dilation": 1, "ceil_mode": ceil_mode}
        axes = tuple(range(-rank, 0))
        total = _windows(values, 0, rank, padding=padding, **layout).sum(axis=axes)
        if divisor_override is not None:
            return total / values.dtype.type(divisor_override)
        spatial, pads = values.shape[-rank:], each(padding, rank)
        if count_include_pad:  # padding counts, but not what ceil_mode adds after it
            counted = np.ones([size + 2 * pad for size, pad in zip(spatial, pads, strict=True)])
            counts, kernel, steps, gaps, sides = _layout(spatial, padding=padding, **layout)
            behind = [(0, max(b - pad, 0)) for (_, b), pad in zip(sides, pads, strict=True)]
            found = windows(np.pad(counted, behind), kernel, steps, gaps, rank)
            number = found[tuple(slice(0, count) for count in counts)].sum(axis=axes)
        else:
            number = _windows(np.ones(spatial), 0, rank, padding=padding, **layout).sum(axis=axes)
        return total / number.astype(values.dtype)

    return pool


def _cover(size: int, count: int) -> Array:
    """Return a mask of the ``size`` elements that each of ``count`` adaptive windows covers."""
    place, element = np.arange(count)[:, None], np.arange(size)
    return (element >= place * size // count) & (element < -(-(place + 1) * size // count))


def _adaptive_average(rank: int) -> Implementation:
    def pool(values: Array, *, output_size: Any) -> Array:
        for i, count in enumerate(each(output_size, rank)):
            axis = values.ndim - rank + i
            means = [
                np.compress(inside, values, axis).sum(axis) / np.count_nonzero(inside)
                for inside in _cover(values.shape[axis], count)
            ]
            values = np.stack(means, axis).astype(values.dtype)
        return values

    return pool


def _adaptive_max(values: Array, *, output_size: Any) -> tuple[Array, Array]:
    rows, columns = (
        _cover(size, count) for size, count in zip(values.shape[-2:], each(output_size, 2), strict=True)
    )
    inside = (rows[:, None, :, None] & columns[None, :, None, :]).reshape(len(rows), len(columns), -1)
    lines = values.reshape(*values.shape[:-2], 1, 1, inside.shape[-1])
    return _first_largest(np.where(inside, lines, values.dtype.type(-np.inf)), inside)


def _lp(values: Array, *, norm_type: float, kernel_size: Any, stride: Any) -> Array:
    found = _windows(
        values**norm_type,
        0,
        2,
        kernel_size=kernel_size,
        stride=stride,
        padding=0,
        dilation=1,
        ceil_mode=False,
    )
    return np.einsum("...ij->...", found) ** (1 / norm_type)


OPERATORS: dict[str, Implementation] = {
    "max_pool1d": _max(1),
    "max_pool2d": _max(2),
    "max_pool3d": _max(3),
    "max_pool2d_with_indices": _max_with_indices,
    "avg_pool1d": _average(1),
    "avg_pool2d": _average(2),
    "avg_pool3d": _average(3),
    "adaptive_avg_pool1d": _adaptive_average(1),
    "adaptive_avg_pool2d": _adaptive_average(2),
    "adaptive_max_pool2d_with_indices": _adaptive_max,
    "lp_pool2d": _lp,
}
