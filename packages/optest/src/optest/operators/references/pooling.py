"""References of pooling: a loop over the windows, each taken as a block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from .convolution import Sizes, spread
from .wide import Array, Reference, reference

Bounds = tuple[tuple[int, int], ...]


def _count(size: int, kernel: int, step: int, pad: int, gap: int, ceil_mode: bool) -> int:
    left = size + 2 * pad - gap * (kernel - 1) - 1
    count = math.ceil(left / step) + 1 if ceil_mode else left // step + 1
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def _starts(
    spatial: tuple[int, ...], kernel: Sizes, stride: Any, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> Iterator[list[tuple[int, int]]]:
    """Yield (first position, kernel size) of all windows per spatial dimension; padding is below 0."""
    rank = len(spatial)
    kernels = spread(kernel, rank)
    steps = kernels if stride is None else spread(stride, rank)
    for size, width, step, pad, gap in zip(
        spatial, kernels, steps, spread(padding, rank), spread(dilation, rank), strict=True
    ):
        count = _count(size, width, step, pad, gap, ceil_mode)
        yield [(i * step - pad, width) for i in range(count)]


def _filled(values: Array, rank: int, windows: list[list[Any]], choose: Callable[..., Array]) -> Array:
    """Return an array of the results of ``choose``, called with the window in each dimension."""
    found = [choose(*one) for one in product(*windows)]
    sizes = [len(one) for one in windows]
    return np.stack(found, axis=-1).reshape(*values.shape[:-rank], *sizes)


def _max(rank: int) -> Callable[..., tuple[Array, Array]]:
    def pool(
        values: Array, *, kernel_size: Sizes, stride: Any, padding: Sizes, dilation: Sizes, ceil_mode: bool
    ) -> tuple[Array, Array]:
        spatial, gaps = values.shape[-rank:], spread(dilation, rank)
        windows = []
        for size, gap, starts in zip(
            spatial, gaps, _starts(spatial, kernel_size, stride, padding, dilation, ceil_mode), strict=True
        ):
            taken = [
                [p for p in range(start, start + gap * width, gap) if 0 <= p < size]
                for start, width in starts
            ]
            windows.append(taken)
        return _largest(values, rank, windows)

    return pool


def _largest(values: Array, rank: int, windows: list[list[Any]]) -> tuple[Array, Array]:
    """Return the largest element of each window, and its index in the flattened spatial dimensions."""
    leading = values.shape[:-rank]
    flat = values.reshape(*leading, math.prod(values.shape[-rank:]))

    def places(*one: Any) -> Array:
        grid = np.meshgrid(*one, indexing="ij")
        return np.ravel_multi_index([axis.ravel() for axis in grid], values.shape[-rank:])

    def where(*one: Any) -> Array:
        chosen = places(*one)
        return chosen[np.argmax(flat[..., chosen], axis=-1)]

    index = _filled(values, rank, windows, where)
    largest = np.take_along_axis(flat, index.reshape(*leading, math.prod(index.shape[-rank:])), axis=-1)
    return largest.reshape(index.shape), index


def _average(rank: int) -> Callable[..., Array]:
    def pool(
        values: Array,
        *,
        kernel_size: Sizes,
        stride: Any,
        padding: Sizes,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None = None,
    ) -> Array:
        spatial, pads = values.shape[-rank:], spread(padding, rank)
        windows: list[list[Any]] = []
        for size, pad, starts in zip(
            spatial, pads, _starts(spatial, kernel_size, stride, padding, 1, ceil_mode), strict=True
        ):
            windows.append([(max(a, 0), min(a + w, size), min(a + w, size + pad) - a) for a, w in starts])

        def mean(*one: tuple[int, int, int]) -> Array:
            place: Any = (..., *(slice(first, last) for first, last, _ in one))
            block = values[place]
            whole = math.prod(padded for _, _, padded in one)
            inside = math.prod(last - first for first, last, _ in one)
            divisor = divisor_override or (whole if count_include_pad else inside)
            return _total(block, rank) / divisor

        return _filled(values, rank, windows, mean)

    return pool


def _total(block: Array, rank: int) -> Array:
    return block.sum(axis=tuple(range(-rank, 0)))


def _adaptive_bounds(spatial: tuple[int, ...], output_size: Sizes) -> list[list[tuple[int, int]]]:
    counts = spread(output_size, len(spatial))
    return [
        [(i * size // count, math.ceil((i + 1) * size / count)) for i in range(count)]
        for size, count in zip(spatial, counts, strict=True)
    ]


def _adaptive_average(rank: int) -> Reference:
    def pool(values: Array, *, output_size: Sizes) -> Array:
        def mean(*one: tuple[int, int]) -> Array:
            place: Any = (..., *(slice(*bounds) for bounds in one))
            block = values[place]
            return _total(block, rank) / math.prod(last - first for first, last in one)

        return _filled(values, rank, list(_adaptive_bounds(values.shape[-rank:], output_size)), mean)

    return reference(pool)


def _first_of(pool: Callable[..., tuple[Array, Array]]) -> Reference:
    return reference(lambda values, **attributes: pool(values, **attributes)[0])


max_pool1d_reference = _first_of(_max(1))
max_pool2d_reference = _first_of(_max(2))
max_pool3d_reference = _first_of(_max(3))
max_pool2d_with_indices_reference = reference(_max(2))
avg_pool1d_reference = reference(_average(1))
avg_pool2d_reference = reference(_average(2))
avg_pool3d_reference = reference(_average(3))
adaptive_avg_pool1d_reference = _adaptive_average(1)
adaptive_avg_pool2d_reference = _adaptive_average(2)


@reference
def adaptive_max_pool2d_with_indices_reference(values: Array, *, output_size: Sizes) -> tuple[Array, Array]:
    bounds = _adaptive_bounds(values.shape[-2:], output_size)
    return _largest(values, 2, [[list(range(*one)) for one in line] for line in bounds])


@reference
def lp_pool2d_reference(values: Array, *, norm_type: float, kernel_size: Sizes, stride: Any) -> Array:
    power = values.dtype.type(norm_type)
    windows = [
        [(start, start + width) for start, width in starts]
        for starts in _starts(values.shape[-2:], kernel_size, stride, 0, 1, False)
    ]

    def norm(rows: tuple[int, int], columns: tuple[int, int]) -> Array:
        return _total(values[..., slice(*rows), slice(*columns)] ** power, 2) ** (1 / power)

    return _filled(values, 2, list(windows), norm)
