"""References of scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import Array, Reference, is_float, lined_up, put_back, reference


def _running(function: Callable[..., Any]) -> Reference:
    def scan(values: Array, *, dim: int) -> Array:
        whole = values.astype(np.int64) if values.dtype.kind == "b" else values
        return put_back(function(lined_up(whole, dim), axis=-1), dim, values)

    return reference(scan)


cumsum_reference = _running(np.cumsum)
cumprod_reference = _running(np.cumprod)
logcumsumexp_reference = _running(np.logaddexp.accumulate)


def _extreme(beats: Callable[[Any, Any], Any]) -> Reference:
    """Return a reference for the best value so far; a later equal value wins, and NaN always wins."""

    def scan(values: Array, *, dim: int) -> tuple[Array, Array]:
        lines = lined_up(values, dim)
        best, index = lines.copy(), np.zeros(lines.shape, np.int64)
        for i in range(1, lines.shape[-1]):
            old, new = best[..., i - 1], lines[..., i]
            wins = beats(new, old)
            if is_float(values):
                wins = np.isnan(new) | (wins & ~np.isnan(old))
            best[..., i] = np.where(wins, new, old)
            index[..., i] = np.where(wins, i, index[..., i - 1])
        return put_back(best, dim, values), put_back(index, dim, values)

    return reference(scan)


cummax_reference = _extreme(np.greater_equal)
cummin_reference = _extreme(np.less_equal)


@reference
def diff_reference(values: Array, *, n: int, dim: int) -> Array:
    for _ in range(min(n, values.shape[dim])):
        size = values.shape[dim]
        behind, ahead = np.arange(size - 1), np.arange(1, size)
        values = np.take(values, ahead, axis=dim) - np.take(values, behind, axis=dim)
    return values
