"""Draws the values of one input from a domain, in any dtype, deterministically.

Not here: how generators combine several inputs (``random``, ``edge``).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ..core.dtypes import kind_of
from ..operators.domain import Domain

Array = NDArray[Any]

SPECIAL_FLOATS = (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.5, -1.5, 2.5)
"""Values that are mixed into floats if an operator declares that it accepts them."""
FINITE_SPECIALS = tuple(one for one in SPECIAL_FLOATS if not math.isinf(one))
_SMALL = 10
"""The largest size of most random integers, so that results stay readable and ties occur."""
_WHOLE = 8
_GAP = 0.125
"""The smallest absolute value of floats that must not be zero."""


def draw(shape: tuple[int, ...], dtype: str, domain: Domain, rng: np.random.Generator) -> Array:
    """Draw an array of ``shape`` and ``dtype`` within ``domain``, except for indices."""
    kind = kind_of(np.dtype(dtype))
    if kind == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind == "complex":
        part = "float32" if dtype == "complex64" else "float64"
        real, imaginary = (draw(shape, part, domain, rng) for _ in range(2))
        return np.asarray(real + 1j * imaginary).astype(dtype)
    if domain.distinct:
        values = _distinct(shape, domain.axis, kind == "int" and dtype.startswith("u"), rng)
        values = values if kind == "int" else values * 0.3
    elif kind == "int":
        values = _integers(shape, dtype, domain, rng)
    else:
        values = _floats(shape, domain, rng)
    if domain.sorted and values.ndim:
        values = np.sort(values, axis=-1)
    return np.asarray(values).astype(dtype)


def draw_indices(
    shape: tuple[int, ...],
    dtype: str,
    size: int,
    rng: np.random.Generator,
    *,
    negative: bool = False,
    distinct: bool = False,
    axis: int | None = None,
) -> Array:
    """Draw indices into an axis of ``size``; with ``negative``, some count from the end.

    With ``distinct``, they differ along ``axis``, or all differ if that is None. Raises
    ``ValueError`` if more distinct indices are needed than there are.
    """
    if not distinct or not shape:
        return rng.integers(-size if negative else 0, max(size, 1), shape).astype(dtype)
    count = math.prod(shape) if axis is None else shape[axis]
    if count > size:
        raise ValueError(f"{count} distinct indices cannot be drawn from {size}")
    if axis is None:
        return rng.permutation(size)[:count].reshape(shape).astype(dtype)
    lines = (*shape[:axis], *shape[axis + 1 :], size)
    orders = rng.random(lines).argsort(axis=-1)[..., :count]
    return np.moveaxis(orders, -1, axis).astype(dtype)


def sprinkle(values: Array, specials: Array, rng: np.random.Generator, share: float = 0.25) -> None:
    """Overwrite some elements with ``specials``, each used at most once; at most a ``share`` of all elements.

    If any element is overwritten, the last one is, because kernels forget it most easily.
    """
    count = min(len(specials), int(values.size * share))
    places = rng.permutation(values.size)
    places[np.flatnonzero(places == values.size - 1)], places[:1] = places[:1], values.size - 1
    places = places[:count]
    values.reshape(-1)[places] = rng.permutation(specials)[:count]


@cache
def has_infinity(dtype: str) -> bool:
    """Whether a floating dtype has infinities; some 8-bit formats have none."""
    return bool(np.isinf(np.array(math.inf).astype(dtype).astype(np.float64)))


def integer_limits(dtype: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer dtype."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def _distinct(shape: tuple[int, ...], axis: int | None, unsigned: bool, rng: np.random.Generator) -> Array:
    """Draw integers around 0 (unsigned: from 0), each at most once, or once along ``axis``."""
    if axis is None or not shape:
        size = math.prod(shape)
        return rng.permutation(size).reshape(shape) - (0 if unsigned else size // 2)
    size = shape[axis]
    lines = rng.random((*shape[:axis], *shape[axis + 1 :], size)).argsort(axis=-1)
    return np.moveaxis(lines, -1, axis) - (0 if unsigned else size // 2)


def _integers(shape: tuple[int, ...], dtype: str, domain: Domain, rng: np.random.Generator) -> Array:
    """Draw integers within the domain; if it is unbounded, small ones mixed with others.

    Then one in ten is the least or the largest value, and about one in seven is from the whole range.
    """
    least, largest = integer_limits(dtype)
    free = domain.low is None and domain.high is None
    start = -_SMALL if domain.low is None else math.ceil(domain.low)
    stop = start + 2 * _SMALL if domain.high is None else math.floor(domain.high)
    start, stop = max(start, least), min(max(stop, start), largest)
    if domain.positive:
        start = max(start, 1)
    values = rng.integers(start, stop, shape, np.int64, endpoint=True)
    if free:
        anywhere = rng.integers(least, largest, shape, np.int64, endpoint=True)
        chance = rng.random(shape)
        values = np.select([chance < 0.05, chance < 0.1, chance < 0.25], [least, largest, anywhere], values)
    if domain.nonzero:
        values = np.where(values == 0, stop, values)
    return np.maximum(values, 1) if domain.positive else values


def _floats(shape: tuple[int, ...], domain: Domain, rng: np.random.Generator) -> Array:
    if domain.simplex:
        sizes = rng.exponential(size=shape)
        return sizes / sizes.sum(axis=-1, keepdims=True)
    low, high = domain.low, domain.high
    if domain.integers or domain.ties:
        start = -_WHOLE if low is None else math.ceil(low)
        stop = start + 2 * _WHOLE if high is None else math.floor(high)
        values = rng.integers(start, stop, shape, endpoint=True).astype(np.float64)
        if domain.nonzero:
            values = np.where(values == 0, float(stop), values)
        return values / 3 if domain.ties else values
    if low is not None and high is not None:
        values = rng.uniform(low, high, shape)
    elif low is not None or high is not None:
        distance = rng.exponential(2.0, shape)
        values = low + distance if low is not None else float(high or 0) - distance
    elif domain.positive:
        return np.exp(rng.normal(size=shape))
    else:
        values = 2 * rng.normal(size=shape)
    if domain.wide:
        values = np.where(rng.random(shape) < 0.25, 1000 * values, values)
    if domain.nonzero:
        values = np.where(np.abs(values) < _GAP, np.copysign(_GAP, values), values)
    return np.maximum(values, _GAP) if domain.positive else values
