"""References of Fourier transforms: the defining sums, as products with a matrix of powers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .wide import PI, Array, reference


def _powers(count: int, sign: int, complex_type: Any) -> Array:
    """Return exp(sign · 2πi jk / count); jk is reduced modulo ``count`` first, so that the angle is small."""
    turns = np.outer(np.arange(count), np.arange(count)) % count
    angles = 2 * PI * turns.astype(np.longdouble) / count
    return (np.cos(angles) + sign * 1j * np.sin(angles)).astype(complex_type)


def _complex(values: Array) -> Array:
    return values.astype(np.result_type(values.dtype, np.complex64))


def _fitted(values: Array, count: int) -> Array:
    """Return the values with the last dimension cut to ``count``, or padded with zeros."""
    kept = values[..., :count]
    return np.pad(kept, [(0, 0)] * (values.ndim - 1) + [(0, count - kept.shape[-1])])


def _scale(count: int, norm: str | None, inverse: bool) -> Any:
    if norm == "ortho":
        return 1 / np.sqrt(np.longdouble(count))
    return 1 / np.longdouble(count) if inverse == (norm != "forward") else np.longdouble(1)


def _transform(values: Array, count: int | None, dim: int, norm: str | None, *, inverse: bool) -> Array:
    lines = np.moveaxis(_complex(values), dim, -1)
    count = lines.shape[-1] if count is None else count
    powers = _powers(count, 1 if inverse else -1, lines.dtype)
    found = np.matmul(_fitted(lines, count), powers) * _scale(count, norm, inverse)
    return np.moveaxis(found.astype(lines.dtype), -1, dim)


@reference
def fft_reference(values: Array, *, n: int | None, dim: int, norm: str | None) -> Array:
    return _transform(values, n, dim, norm, inverse=False)


@reference
def ifft_reference(values: Array, *, n: int | None, dim: int, norm: str | None) -> Array:
    return _transform(values, n, dim, norm, inverse=True)


@reference
def rfft_reference(values: Array, *, n: int | None, dim: int, norm: str | None) -> Array:
    lines = np.moveaxis(_transform(values, n, dim, norm, inverse=False), dim, -1)
    return np.moveaxis(lines[..., : lines.shape[-1] // 2 + 1], -1, dim)


@reference
def irfft_reference(values: Array, *, n: int | None, dim: int, norm: str | None) -> Array:
    """Complete the missing half by conjugation; drop imaginary parts of elements that must be real."""
    lines = np.moveaxis(values, dim, -1)
    count = 2 * (lines.shape[-1] - 1) if n is None else n
    half = _fitted(lines, count // 2 + 1)
    half[..., 0] = half[..., 0].real
    if count % 2 == 0:
        half[..., -1] = half[..., -1].real
    whole = np.concatenate([half, np.conj(half[..., 1 : (count + 1) // 2][..., ::-1])], axis=-1)
    return np.moveaxis(_transform(whole, None, -1, norm, inverse=True).real, -1, dim)


def _plane(values: Array, s: Any, dim: tuple[int, ...], norm: str | None, *, inverse: bool) -> Array:
    for one, count in zip(dim, s or (None,) * len(dim), strict=True):
        values = _transform(values, count, one, norm, inverse=inverse)
    return values


@reference
def fft2_reference(values: Array, *, s: Any, dim: tuple[int, ...], norm: str | None) -> Array:
    return _plane(values, s, dim, norm, inverse=False)


@reference
def ifft2_reference(values: Array, *, s: Any, dim: tuple[int, ...], norm: str | None) -> Array:
    return _plane(values, s, dim, norm, inverse=True)


def _shifted(values: Array, dim: Any, direction: int) -> Array:
    dims = range(values.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    for one in dims:
        size = values.shape[one]
        places = (np.arange(size) - direction * (size // 2)) % max(size, 1)
        values = np.take(values, places, axis=one)
    return values


@reference
def fftshift_reference(values: Array, *, dim: Any) -> Array:
    return _shifted(values, dim, 1)


@reference
def ifftshift_reference(values: Array, *, dim: Any) -> Array:
    return _shifted(values, dim, -1)
