"""References of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import Array, Reference, all_axes, reference

Dims = int | tuple[int, ...] | None


def _reduction(function: Callable[..., Any]) -> Reference:
    def reduce(values: Array, *, dim: Dims, keepdim: bool) -> Array:
        return function(values, axis=all_axes(dim, values.ndim), keepdims=keepdim)

    return reference(reduce)


def _whole(values: Array) -> Array:
    """Return bools as integers, so that they are counted."""
    return values.astype(np.int64) if values.dtype.kind == "b" else values


sum_reference = _reduction(lambda values, **along: np.sum(_whole(values), **along))
prod_reference = _reduction(lambda values, **along: np.prod(_whole(values), **along))
amax_reference = _reduction(np.max)
amin_reference = _reduction(np.min)
any_reference = _reduction(np.any)
all_reference = _reduction(np.all)


@reference
def mean_reference(values: Array, *, dim: Dims, keepdim: bool) -> Array:
    axes = all_axes(dim, values.ndim)
    return np.sum(values, axis=axes, keepdims=keepdim) / _count(values, axes)


@reference
def var_reference(values: Array, *, dim: Dims, correction: int, keepdim: bool) -> Array:
    return _variance(values, dim, correction, keepdim)


@reference
def std_reference(values: Array, *, dim: Dims, correction: int, keepdim: bool) -> Array:
    return np.sqrt(_variance(values, dim, correction, keepdim))


def _variance(values: Array, dim: Dims, correction: int, keepdim: bool) -> Array:
    axes = all_axes(dim, values.ndim)
    count = _count(values, axes)
    mean = np.sum(values, axis=axes, keepdims=True) / count
    squares = np.sum((values - mean) ** 2, axis=axes, keepdims=keepdim)
    return squares / max(values.dtype.type(0), count - correction)


def _count(values: Array, axes: tuple[int, ...]) -> Any:
    """Return the number of elements per result, in a type that allows division by zero."""
    return values.dtype.type(math.prod(values.shape[one] for one in axes))


def _position(function: Callable[..., Any]) -> Reference:
    def find(values: Array, *, dim: int | None, keepdim: bool) -> Array:
        if values.ndim == 0:
            return np.zeros((), np.int64)
        return function(values, axis=dim, keepdims=keepdim)

    return reference(find)


argmax_reference = _position(np.argmax)
argmin_reference = _position(np.argmin)


@reference
def count_nonzero_reference(values: Array, *, dim: Dims) -> Array:
    return np.asarray(np.sum(values != 0, axis=all_axes(dim, values.ndim), dtype=np.int64))


@reference
def logsumexp_reference(values: Array, *, dim: Dims, keepdim: bool) -> Array:
    axes = all_axes(dim, values.ndim)
    peak = np.max(values, axis=axes, keepdims=True, initial=-np.inf)
    peak = np.where(np.isinf(peak), 0, peak)
    total = np.log(np.sum(np.exp(values - peak), axis=axes, keepdims=True)) + peak
    return total if keepdim else np.squeeze(total, axis=axes)


@reference
def vector_norm_reference(values: Array, *, dim: Dims, ord: float | str, keepdim: bool) -> Array:
    along: dict[str, Any] = {"axis": all_axes(dim, values.ndim), "keepdims": keepdim}
    order, sizes = float(ord), np.abs(values)
    if order == np.inf:
        return np.max(sizes, **along)
    if order == -np.inf:
        return np.min(sizes, **along)
    if order == 0:
        return np.sum(sizes != 0, **along).astype(values.dtype)
    power = values.dtype.type(order)
    return np.sum(sizes**power, **along) ** (1 / power)
