"""Attention by ``einsum``, Fourier transforms by ``numpy.fft``, and resizing by gathering neighbors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .common import Array, Implementation, each


def _attend(query: Array, key: Array, value: Array, scale: float | None, mask: Array | None) -> Array:
    """Compute attention; ``mask`` has bools (True keeps a key) or numbers to add to the scores."""
    factor = query.dtype.type(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    scores = np.einsum("...le,...se->...ls", query, key) * factor
    if mask is not None and mask.dtype.kind != "b":
        scores, mask = scores + mask, None
    seen = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    peak = np.where(seen, scores, -np.inf).max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(np.where(seen, scores - peak, -np.inf))
    total = np.maximum(np.einsum("...ls->...l", weights), np.finfo(scores.dtype).tiny)
    return np.einsum("...ls,...sv->...lv", weights, value) / total[..., None]


def _attention(
    query: Array, key: Array, value: Array, *, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Array:
    if enable_gqa:  # group the query's heads instead of repeating the key's
        heads, times = key.shape[-3], query.shape[-3] // key.shape[-3]
        grouped = query.reshape(*query.shape[:-3], heads, times, *query.shape[-2:])
        found = _attention(
            grouped, key[..., None, :, :], value[..., None, :, :],
            is_causal=is_causal, scale=scale, enable_gqa=False,
        )  # fmt: skip
        return found.reshape(*query.shape[:-1], value.shape[-1])
    mask = np.arange(key.shape[-2]) <= np.arange(query.shape[-2])[:, None] if is_causal else None
    return _attend(query, key, value, scale, mask)


def _masked_attention(query: Array, key: Array, value: Array, mask: Array, *, scale: float | None) -> Array:
    return _attend(query, key, value, scale, mask)


def _fft(function: Callable[..., Array]) -> Implementation:
    def transform(values: Array, *, n: int | None, dim: int, norm: Any) -> Array:
        return function(values, n=n, axis=dim, norm=norm)

    return transform


def _fft2(function: Callable[..., Array]) -> Implementation:
    def transform(values: Array, *, s: Any, dim: tuple[int, ...], norm: Any) -> Array:
        sizes = s or [values.shape[one] for one in dim]
        return function(values, s=sizes, axes=dim, norm=norm)

    return transform


def _sizes(values: Array, size: Any, scale_factor: Any) -> list[tuple[int, int, float]]:
    """Return per spatial dimension: its axis, the wanted size, and input elements per output element."""
    rank, found = values.ndim - 2, []
    for i in range(rank):
        before = values.shape[2 + i]
        if size is None:
            factor = each(scale_factor, rank)[i]
            found.append((2 + i, int(before * factor), 1 / factor))
        else:
            wanted = each(size, rank)[i]
            found.append((2 + i, wanted, before / wanted))
    return found


def _nearest(offset: float) -> Implementation:
    def resize(values: Array, *, size: Any, scale_factor: Any, mode: str) -> Array:
        for axis, wanted, scale in _sizes(values, size, scale_factor):
            places = ((np.arange(wanted) + offset) * scale).astype(int)
            values = np.take(values, np.minimum(places, values.shape[axis] - 1), axis=axis)
        return values

    return resize


def _positions(before: int, wanted: int, scale: float, align_corners: bool) -> Array:
    if align_corners:
        return np.linspace(0, before - 1, wanted) if wanted > 1 else np.zeros(1)
    return scale * (np.arange(wanted) + 0.5) - 0.5


def _linear(values: Array, *, size: Any, scale_factor: Any, mode: str, align_corners: bool) -> Array:
    """Interpolate linearly between the two neighbors of each position, which is clipped to the input."""
    for axis, wanted, scale in _sizes(values, size, scale_factor):
        top = values.shape[axis] - 1
        place = np.clip(_positions(top + 1, wanted, scale, align_corners), 0, top)
        low = np.minimum(place.astype(int), max(top - 1, 0))
        share = _shaped(place - low, values, axis)
        left, right = (np.take(values, np.minimum(one, top), axis=axis) for one in (low, low + 1))
        values = left + share * (right - left)
    return values


def _shaped(weights: Array, values: Array, axis: int) -> Array:
    return weights.astype(values.dtype).reshape(-1, *(1,) * (values.ndim - 1 - axis))


def _cubic(values: Array, *, size: Any, scale_factor: Any, mode: str, align_corners: bool) -> Array:
    """Weight four neighbors by polynomials in the fraction t (Catmull–Rom form with a = −0.75)."""
    a = -0.75
    for axis, wanted, scale in _sizes(values, size, scale_factor):
        top = values.shape[axis] - 1
        place = _positions(top + 1, wanted, scale, align_corners)
        low = np.floor(place).astype(int)
        t = place - low
        weights = (
            a * (t**3 - 2 * t**2 + t),
            (a + 2) * t**3 - (a + 3) * t**2 + 1,
            -(a + 2) * t**3 + (2 * a + 3) * t**2 - a * t,
            a * (t**2 - t**3),
        )
        values = sum(
            (
                np.take(values, np.clip(low + offset, 0, top), axis=axis) * _shaped(weight, values, axis)
                for offset, weight in zip((-1, 0, 1, 2), weights, strict=True)
            ),
            start=np.zeros((), values.dtype),
        )
    return values


def _grid_sample(values: Array, grid: Array, *, mode: str, padding_mode: str, align_corners: bool) -> Array:
    places = [_unnormalized(grid[..., i], values.shape[3 - i], padding_mode, align_corners) for i in (1, 0)]
    if mode == "nearest":
        return _picked(values, *(np.rint(one).astype(int) for one in places))
    lows = [np.floor(one).astype(int) for one in places]
    shares = [one - low for one, low in zip(places, lows, strict=True)]
    result = np.zeros((), values.dtype)
    for down in (0, 1):
        for right in (0, 1):
            weight = np.abs(1 - down - shares[0]) * np.abs(1 - right - shares[1])
            picked = _picked(values, lows[0] + down, lows[1] + right)
            result = result + picked * weight[:, None].astype(values.dtype)
    return result


def _unnormalized(grid: Array, size: int, padding_mode: str, align_corners: bool) -> Array:
    place = (grid + 1) * ((size - 1) / 2) if align_corners else ((grid + 1) * size - 1) / 2
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":  # a triangle wave between the borders
        border = 0.0 if align_corners else 0.5
        span = size - 1 + 2 * border
        wave = np.mod(place + border, 2 * span) if span else np.zeros_like(place)
        place = span - np.abs(wave - span) - border
    return np.clip(place, 0, size - 1)


def _picked(values: Array, rows: Array, columns: Array) -> Array:
    """Return values[b, :, rows, columns], and 0 outside, of shape [batch, channels, h, w]."""
    height, width = values.shape[2:]
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
    batch = np.arange(values.shape[0])[:, None, None]
    found = values[batch, :, np.clip(rows, 0, height - 1), np.clip(columns, 0, width - 1)]
    return np.moveaxis(found * inside[..., None], -1, 1)


def _pixel_shuffle(values: Array, *, upscale_factor: int) -> Array:
    r = upscale_factor
    *batch, channels, height, width = values.shape
    split = values.reshape(*batch, channels // r**2, r, r, height, width)
    rank = len(batch)
    order = [*range(rank + 1), rank + 3, rank + 1, rank + 4, rank + 2]
    return split.transpose(order).reshape(*batch, channels // r**2, height * r, width * r)


def _pixel_unshuffle(values: Array, *, downscale_factor: int) -> Array:
    r = downscale_factor
    *batch, channels, height, width = values.shape
    split = values.reshape(*batch, channels, height // r, r, width // r, r)
    rank = len(batch)
    order = [*range(rank + 1), rank + 2, rank + 4, rank + 1, rank + 3]
    return split.transpose(order).reshape(*batch, channels * r**2, height // r, width // r)


def _channel_shuffle(values: Array, *, groups: int) -> Array:
    split = values.reshape(values.shape[0], groups, values.shape[1] // groups, *values.shape[2:])
    return np.swapaxes(split, 1, 2).reshape(values.shape)


OPERATORS: dict[str, Implementation] = {
    "scaled_dot_product_attention": _attention,
    "masked_attention": _masked_attention,
    "fft": _fft(np.fft.fft),
    "ifft": _fft(np.fft.ifft),
    "rfft": _fft(np.fft.rfft),
    "irfft": _fft(np.fft.irfft),
    "fft2": _fft2(np.fft.fftn),
    "ifft2": _fft2(np.fft.ifftn),
    "fftshift": lambda values, *, dim: np.fft.fftshift(values, dim),
    "ifftshift": lambda values, *, dim: np.fft.ifftshift(values, dim),
    "interpolate_nearest": _nearest(0.0),
    "interpolate_nearest_exact": _nearest(0.5),
    "interpolate_linear": _linear,
    "interpolate_bicubic": _cubic,
    "grid_sample": _grid_sample,
    "pixel_shuffle": _pixel_shuffle,
    "pixel_unshuffle": _pixel_unshuffle,
    "channel_shuffle": _channel_shuffle,
}
