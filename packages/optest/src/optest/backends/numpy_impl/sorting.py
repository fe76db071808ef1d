"""Sorting and scans, by NumPy's sorts, partitions and accumulations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .common import Array, Implementation, back, last


def _argsort(lines: Array, descending: bool) -> Array:
    """Sort stably along the last dimension; NaN comes last, or first in descending order."""
    if not descending:
        return np.argsort(lines, axis=-1, kind="stable")
    reversed_order = np.argsort(lines[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    return lines.shape[-1] - 1 - reversed_order


def _taken(values: Array, index: Array, dim: int) -> tuple[Array, Array]:
    lines = last(values, dim)
    return back(np.take_along_axis(lines, index, axis=-1), dim, values), back(index, dim, values)


def _sort(values: Array, *, dim: int, descending: bool, stable: bool) -> tuple[Array, Array]:
    return _taken(values, _argsort(last(values, dim), descending), dim)


def _topk(values: Array, *, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Array, Array]:
    return _taken(values, _argsort(last(values, dim), largest)[..., :k], dim)


def _nth(values: Array, dim: int, keepdim: bool, position: int) -> tuple[Array, Array]:
    """Select the element that a partition puts at ``position``; its index is found by its value."""
    lines = last(values, dim)
    chosen = np.partition(lines, position, axis=-1)[..., position : position + 1]
    index = np.argmax(lines == chosen, axis=-1)[..., None]
    found = back(chosen, dim, values), back(index, dim, values)
    if keepdim or values.ndim == 0:
        return found
    return found[0].squeeze(dim), found[1].squeeze(dim)


def _median(values: Array, *, dim: int, keepdim: bool) -> tuple[Array, Array]:
    size = values.shape[dim] if values.ndim else 1
    return _nth(values, dim, keepdim, (size - 1) // 2)


def _search(ordered: Array, values: Array, right: bool) -> Array:
    side: Any = "right" if right else "left"
    if ordered.ndim == 1:
        return np.searchsorted(ordered, values, side=side)
    rows = zip(ordered.reshape(-1, ordered.shape[-1]), values.reshape(-1, values.shape[-1]), strict=True)
    return np.stack([np.searchsorted(*row, side=side) for row in rows]).reshape(values.shape)


def _running(step: Callable[[Array, Array], Array], *, widen: bool = False) -> Implementation:
    """Return a scan that applies ``step`` to one element after another along the dimension."""

    def scan(values: Array, *, dim: int) -> Array:
        whole = values.astype(np.int64) if widen and values.dtype.kind in "biu" else values
        lines = last(whole, dim).copy()
        for i in range(1, lines.shape[-1]):
            lines[..., i] = step(lines[..., i - 1], lines[..., i])
        return back(lines, dim, values)

    return scan


def _log_add(left: Array, right: Array) -> Array:
    high = np.maximum(left, right)
    return np.where(np.isinf(high), high, high + np.log1p(np.exp(-np.abs(left - right))))


def _extreme(ufunc: np.ufunc) -> Implementation:
    def scan(values: Array, *, dim: int) -> tuple[Array, Array]:
        lines = last(values, dim)
        best = ufunc.accumulate(lines, axis=-1)
        reached = (lines == best) | (lines != lines)
        index = np.where(reached, np.arange(lines.shape[-1]), 0)
        where = np.maximum.accumulate(index, axis=-1)
        return back(best, dim, values), back(where, dim, values)

    return scan


def _diff(values: Array, *, n: int, dim: int) -> Array:
    return np.diff(values, n=n, axis=dim)


OPERATORS: dict[str, Implementation] = {
    "sort": _sort,
    "argsort": lambda values, **order: _sort(values, **order)[1],
    "msort": lambda values: np.sort(values, axis=0) if values.ndim else values,
    "topk": _topk,
    "kthvalue": lambda values, *, k, dim, keepdim: _nth(values, dim, keepdim, k - 1),
    "median": _median,
    "searchsorted": lambda ordered, values, *, right: _search(ordered, values, right),
    "bucketize": lambda values, bounds, *, right: _search(bounds, values, right),
    "cumsum": _running(np.add, widen=True),
    "cumprod": _running(np.multiply, widen=True),
    "logcumsumexp": _running(_log_add),
    "cummax": _extreme(np.maximum),
    "cummin": _extreme(np.minimum),
    "diff": _diff,
}
