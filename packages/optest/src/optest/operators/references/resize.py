"""References of interpolation: a matrix of weights for each dimension (after ATen's UpSample.h)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .wide import Array, Reference, reference

Weights = Callable[[int, int, float, bool], Array]
"""A function (size before, size after, scale, align_corners) → matrix of weights [after, before]."""


def _interpolation(weights: Weights) -> Reference:
    def resize(
        values: Array, *, size: Any, scale_factor: Any, mode: str, align_corners: bool = False
    ) -> Array:
        for i, before, after, scale in _steps(values, size, scale_factor):
            matrix = weights(before, after, scale, align_corners).astype(values.dtype)
            lines = np.moveaxis(values, 2 + i, -1)
            values = np.moveaxis(np.matmul(lines, matrix.T), -1, 2 + i)
        return values

    return reference(resize)


def _nearest(shift: float) -> Reference:
    """Return a reference that selects elements; weights would not do, because 0 · NaN is NaN."""

    def resize(values: Array, *, size: Any, scale_factor: Any, mode: str) -> Array:
        for i, before, after, scale in _steps(values, size, scale_factor):
            chosen = [min(math.floor((j + shift) * scale), before - 1) for j in range(after)]
            values = np.take(values, chosen, 2 + i)
        return values

    return reference(resize)


def _steps(values: Array, size: Any, scale_factor: Any) -> Iterator[tuple[int, int, int, float]]:
    """Yield, for each spatial dimension, its number, size before, size after, and scale."""
    rank = values.ndim - 2
    factors, wanted = _each(scale_factor, rank), _each(size, rank)
    for i, before in enumerate(values.shape[2:]):
        after = int(before * factors[i]) if size is None else wanted[i]
        yield i, before, after, 1 / factors[i] if size is None else before / after


def _each(value: Any, rank: int) -> Any:
    if isinstance(value, tuple):
        return value * rank if len(value) == 1 else value
    return (value,) * rank


def _rows(after: int, before: int) -> Array:
    return np.zeros((after, before), np.longdouble)


def _source(i: int, before: int, after: int, scale: float, align_corners: bool) -> float:
    """Return the position in the input that belongs to the i-th result."""
    if align_corners:
        return i * (before - 1) / (after - 1) if after > 1 else 0.0
    return (i + 0.5) * scale - 0.5


def _linear(before: int, after: int, scale: float, align_corners: bool) -> Array:
    matrix = _rows(after, before)
    for i in range(after):
        place = max(_source(i, before, after, scale, align_corners), 0.0)
        first = min(math.floor(place), before - 1)
        matrix[i, first] += 1 - (place - first)
        matrix[i, min(first + 1, before - 1)] += place - first
    return matrix


def _cubic(before: int, after: int, scale: float, align_corners: bool) -> Array:
    matrix = _rows(after, before)
    for i in range(after):
        place = _source(i, before, after, scale, align_corners)
        first = math.floor(place)
        for offset in (-1, 0, 1, 2):
            distance = abs(place - (first + offset))
            matrix[i, min(max(first + offset, 0), before - 1)] += _cubic_kernel(distance)
    return matrix


def _cubic_kernel(x: float, a: float = -0.75) -> float:
    """Return Keys' cubic convolution kernel, with PyTorch's parameter."""
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a


interpolate_nearest_reference = _nearest(0.0)
interpolate_nearest_exact_reference = _nearest(0.5)
interpolate_linear_reference = _interpolation(_linear)
interpolate_bicubic_reference = _interpolation(_cubic)


@reference
def grid_sample_reference(
    values: Array, grid: Array, *, mode: str, padding_mode: str, align_corners: bool
) -> Array:
    batch, channels, height, width = values.shape
    result = np.zeros((batch, channels, *grid.shape[1:3]), values.dtype)
    for b, i, j in np.ndindex(*grid.shape[:3]):
        x = _pixel(grid[b, i, j, 0], width, padding_mode, align_corners)
        y = _pixel(grid[b, i, j, 1], height, padding_mode, align_corners)
        if mode == "nearest":
            corners = [(np.rint(y), np.rint(x), 1.0)]
        else:
            top, left = np.floor(y), np.floor(x)
            corners = [
                (top + down, left + right, (1 - abs(y - top - down)) * (1 - abs(x - left - right)))
                for down in (0, 1)
                for right in (0, 1)
            ]
        for row, column, weight in corners:
            if 0 <= row < height and 0 <= column < width:
                result[b, :, i, j] += weight * values[b, :, int(row), int(column)]
    return result


def _pixel(place: Any, size: int, padding_mode: str, align_corners: bool) -> Any:
    """Convert a grid coordinate to a pixel coordinate; ``padding_mode`` says how to handle outside ones."""
    pixel = (place + 1) / 2 * (size - 1) if align_corners else ((place + 1) * size - 1) / 2
    if padding_mode == "reflection":
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        span = high - low
        if span == 0:
            return pixel * 0
        turns, rest = divmod(abs(pixel - low), span)
        pixel = high - rest if turns % 2 else low + rest
    if padding_mode != "zeros":
        pixel = min(max(pixel, 0), size - 1)
    return pixel


@reference
def pixel_shuffle_reference(values: Array, *, upscale_factor: int) -> Array:
    factor = upscale_factor
    *batch, channels, height, width = values.shape
    result = np.empty((*batch, channels // factor**2, height * factor, width * factor), values.dtype)
    for i in range(factor):
        for j in range(factor):
            result[..., i::factor, j::factor] = values[..., i * factor + j :: factor**2, :, :]
    return result


@reference
def pixel_unshuffle_reference(values: Array, *, downscale_factor: int) -> Array:
    factor = downscale_factor
    *batch, channels, height, width = values.shape
    result = np.empty((*batch, channels * factor**2, height // factor, width // factor), values.dtype)
    for i in range(factor):
        for j in range(factor):
            result[..., i * factor + j :: factor**2, :, :] = values[..., i::factor, j::factor]
    return result


@reference
def channel_shuffle_reference(values: Array, *, groups: int) -> Array:
    channels = values.shape[1]
    order = [group * (channels // groups) + i for i in range(channels // groups) for group in range(groups)]
    return values[:, order]
