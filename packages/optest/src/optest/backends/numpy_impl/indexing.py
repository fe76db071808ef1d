"""Gathering and scattering by NumPy's own indexing and ``ufunc.at``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .common import Array, Implementation


def _places(index: Array, dim: int) -> tuple[Array, ...]:
    """Return index arrays: ``index`` for ``dim``, and the element's own position for other dimensions."""
    places: list[Any] = list(np.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


def _gather(values: Array, index: Array, *, dim: int) -> Array:
    return values[_places(index, dim)]


def _take_along_dim(values: Array, index: Array, *, dim: int) -> Array:
    """Index with one array per dimension, broadcasting all dimensions but ``dim`` against each other."""
    shape = list(np.broadcast_shapes(_without(values.shape, dim), _without(index.shape, dim)))
    shape.insert(dim % values.ndim, index.shape[dim])
    places: list[Any] = list(np.indices(shape, sparse=True))
    for i, size in enumerate(values.shape):
        if size == 1:
            places[i] = 0
    places[dim] = np.broadcast_to(index, shape)
    return values[tuple(places)]


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    sizes = list(shape)
    sizes.pop(dim)
    return tuple(sizes)


def _part(source: Array, index: Array) -> Array:
    """Return the leading part of ``source`` that has the shape of ``index``."""
    return source[tuple(slice(0, size) for size in index.shape)]


def _scatter(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    result = values.copy()
    result[_places(index, dim)] = _part(source, index)
    return result


def _scatter_add(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    result = values.copy()
    np.add.at(result, _places(index, dim), _part(source, index))
    return result


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    return np.iinfo(dtype).min, np.iinfo(dtype).max


def _scatter_reduce(
    values: Array, index: Array, source: Array, *, dim: int, reduce: str, include_self: bool
) -> Array:
    places, part = _places(index, dim), _part(source, index)
    low, high = _limits(values.dtype)
    ufunc, neutral = {
        "sum": (np.add, 0),
        "mean": (np.add, 0),
        "prod": (np.multiply, 1),
        "amax": (np.maximum, low),
        "amin": (np.minimum, high),
    }[reduce]
    result = values.copy()
    if not include_self:
        result[places] = neutral
    ufunc.at(result, places, part)
    if reduce != "mean":
        return result
    counts = np.ones(values.shape, np.int64)
    if not include_self:
        counts[places] = 0
    np.add.at(counts, places, 1)
    counts = np.maximum(counts, 1).astype(values.dtype)
    return result / counts if values.dtype.kind == "f" else result // counts


def _along(dim: int, index: Array) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, index)


def _index_add(values: Array, index: Array, source: Array, *, dim: int, alpha: float) -> Array:
    result = values.copy()
    np.add.at(result, _along(dim % values.ndim, index), source * values.dtype.type(alpha))
    return result


def _index_copy(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    result = values.copy()
    result[_along(dim % values.ndim, index)] = source
    return result


def _index_fill(values: Array, index: Array, *, dim: int, value: float) -> Array:
    chosen = np.isin(np.arange(values.shape[dim]), index)
    shape = [1] * values.ndim
    shape[dim] = -1
    return np.where(chosen.reshape(shape), values.dtype.type(value), values)


def _index(values: Array, first: Array, second: Array) -> Array:
    """Merge the first two dimensions and take elements by one linear index."""
    rows, columns = values.shape[:2]
    places = first % rows * columns + second % columns
    return np.take(values.reshape(rows * columns, *values.shape[2:]), places, axis=0)


def _index_put(values: Array, first: Array, second: Array, new: Array, *, accumulate: bool) -> Array:
    result = values.copy()
    if accumulate:
        np.add.at(result, (first, second), new)
    else:
        result[first, second] = new
    return result


def _masked_fill(values: Array, mask: Array, *, value: float) -> Array:
    values, mask = np.broadcast_arrays(values, mask)
    result = values.copy()
    result[mask] = value
    return result


def _embedding_bag(index: Array, weight: Array, *, mode: str) -> Array:
    rows = np.take(weight, index, axis=0)
    if mode == "max":
        return rows.max(axis=1)
    total = np.einsum("bik->bk", rows)
    return total / weight.dtype.type(index.shape[1]) if mode == "mean" else total


OPERATORS: dict[str, Implementation] = {
    "gather": _gather,
    "take_along_dim": _take_along_dim,
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_select": lambda values, index, *, dim: np.take(values, index, axis=dim),
    "index_add": _index_add,
    "index_copy": _index_copy,
    "index_fill": _index_fill,
    "index": _index,
    "index_put": _index_put,
    "masked_fill": _masked_fill,
    "embedding": lambda index, weight: np.take(weight, index, axis=0),
    "embedding_bag": _embedding_bag,
    "one_hot": lambda index, *, num_classes: np.eye(num_classes, dtype=np.int64)[index],
}
