"""References of sorting and searching: Python's stable sort, line by line, NaN as the largest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import Array, is_float, lined_up, put_back, reference


def _order(line: Array, descending: bool) -> list[int]:
    """Return the positions of a vector in ascending or descending order; equal elements keep their order."""
    nan = np.isnan(line) if is_float(line) else np.zeros(line.shape, bool)
    keys = [(bool(nan[i]), 0 if nan[i] else line[i]) for i in range(line.size)]
    return sorted(range(line.size), key=keys.__getitem__, reverse=descending)


def _by_line(values: Array, dim: int, choose: Callable[[Array], Any]) -> Array:
    """Replace each line along ``dim`` by the indices that ``choose`` returns for it."""
    lines = lined_up(values, dim)
    flat = lines.reshape(-1, lines.shape[-1]) if lines.size else lines.reshape(0, max(lines.shape[-1], 1))
    width = len(choose(np.zeros(lines.shape[-1], values.dtype)))
    found = np.array([choose(line) for line in flat], np.int64)
    return found.reshape(*lines.shape[:-1], width)


def _taken(values: Array, index: Array, dim: int) -> tuple[Array, Array]:
    """Return the values at ``index``, whose lines are last, and the indices, with ``dim`` back in place."""
    chosen = np.take_along_axis(lined_up(values, dim), index, axis=-1)
    return put_back(chosen, dim, values), put_back(index, dim, values)


def _sorted(values: Array, dim: int, descending: bool) -> tuple[Array, Array]:
    return _taken(values, _by_line(values, dim, lambda line: _order(line, descending)), dim)


@reference
def sort_reference(values: Array, *, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    return _sorted(values, dim, descending)


@reference
def argsort_reference(values: Array, *, dim: int, descending: bool, stable: bool) -> Array:
    return _sorted(values, dim, descending)[1]


@reference
def msort_reference(values: Array) -> Array:
    return _sorted(values, 0, False)[0]


@reference
def topk_reference(values: Array, *, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    return _taken(values, _by_line(values, dim, lambda line: _order(line, largest)[:k]), dim)


def _one(values: Array, dim: int, keepdim: bool, position: int) -> tuple[Array, Array]:
    """Return the element at ``position`` of each sorted line, and its original position."""
    found = _taken(values, _by_line(values, dim, lambda line: [_order(line, False)[position]]), dim)
    if keepdim or values.ndim == 0:
        return found
    return np.squeeze(found[0], axis=dim), np.squeeze(found[1], axis=dim)


@reference
def kthvalue_reference(values: Array, *, k: int, dim: int, keepdim: bool) -> tuple[Array, Array]:
    return _one(values, dim, keepdim, k - 1)


@reference
def median_reference(values: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    return _one(values, dim, keepdim, (lined_up(values, dim).shape[-1] - 1) // 2)


def _places(ordered: Array, values: Array, right: bool) -> Array:
    """Return, for each value, how many elements in the last dimension of ``ordered`` are below (or at) it."""
    below = np.less_equal if right else np.less
    if ordered.ndim == 1:
        return below(ordered, values[..., None]).sum(axis=-1, dtype=np.int64)
    return below(ordered[..., None, :], values[..., None]).sum(axis=-1, dtype=np.int64)


@reference
def searchsorted_reference(ordered: Array, values: Array, *, right: bool) -> Array:
    return _places(ordered, values, right)


@reference
def bucketize_reference(values: Array, bounds: Array, *, right: bool) -> Array:
    return _places(bounds, values, right)
