"""References of gathering and scattering: loops over single elements or slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import Array, Reference, is_float, reference


@reference
def gather_reference(values: Array, index: Array, *, dim: int) -> Array:
    found = np.empty(index.shape, values.dtype)
    for place in np.ndindex(*index.shape):
        found[place] = values[_moved(place, dim, index[place])]
    return found


def _moved(place: tuple[int, ...], dim: int, position: Any) -> tuple[Any, ...]:
    """Return ``place`` with ``position`` along ``dim``."""
    source: list[Any] = list(place)
    if source:
        source[dim] = position
    return tuple(source)


@reference
def take_along_dim_reference(values: Array, index: Array, *, dim: int) -> Array:
    dim %= values.ndim
    around = [max(sizes) if min(sizes) else 0 for sizes in zip(values.shape, index.shape, strict=True)]
    lines, wanted = list(around), list(around)
    lines[dim], wanted[dim] = values.shape[dim], index.shape[dim]
    return np.take_along_axis(np.broadcast_to(values, lines), np.broadcast_to(index, wanted), axis=dim)


def _scatter(
    values: Array, index: Array, source: Array, dim: int, combine: Callable[[Any, Any], Any]
) -> Array:
    result = values.copy()
    for place in np.ndindex(*index.shape):
        target = _moved(place, dim, index[place])
        result[target] = combine(result[target], source[place])
    return result


@reference
def scatter_reference(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    return _scatter(values, index, source, dim, lambda old, new: new)


@reference
def scatter_add_reference(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    return _scatter(values, index, source, dim, np.add)


@reference
def scatter_reduce_reference(
    values: Array, index: Array, source: Array, *, dim: int, reduce: str, include_self: bool
) -> Array:
    """Collect the values for each cell, then reduce them; PyTorch rounds the mean of integers down."""
    cells: dict[tuple[Any, ...], list[Any]] = {}
    for place in np.ndindex(*index.shape):
        target = _moved(place, dim, int(index[place]))
        cells.setdefault(target, [values[target]] if include_self else []).append(source[place])
    result = values.copy()
    for target, met in cells.items():
        result[target] = _REDUCERS[reduce](np.array(met, values.dtype))
    return result


def _mean(values: Array) -> Any:
    return values.mean(dtype=values.dtype) if is_float(values) else values.sum() // values.size


_REDUCERS: dict[str, Callable[[Array], Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "mean": _mean,
    "amax": np.max,
    "amin": np.min,
}


@reference
def index_select_reference(values: Array, index: Array, *, dim: int) -> Array:
    lines = np.moveaxis(values, dim, 0)
    found = np.empty((index.size, *lines.shape[1:]), values.dtype)
    for i, position in enumerate(index):
        found[i] = lines[position]
    return np.moveaxis(found, 0, dim)


def _updated(values: Array, index: Array, source: Array | None, dim: int, combine: Any) -> Array:
    """Return a copy of ``values`` in which each indexed slice is combined with a slice of ``source``."""
    lines = np.moveaxis(values.copy(), dim, 0)
    for i, position in enumerate(index):
        lines[position] = combine(lines[position], None if source is None else np.moveaxis(source, dim, 0)[i])
    return np.moveaxis(lines, 0, dim)


@reference
def index_add_reference(values: Array, index: Array, source: Array, *, dim: int, alpha: float) -> Array:
    return _updated(values, index, source, dim, lambda old, new: old + alpha * new)


@reference
def index_copy_reference(values: Array, index: Array, source: Array, *, dim: int) -> Array:
    return _updated(values, index, source, dim, lambda old, new: new)


@reference
def index_fill_reference(values: Array, index: Array, *, dim: int, value: float) -> Array:
    return _updated(values, index, None, dim, lambda old, new: value)


@reference
def index_reference(values: Array, first: Array, second: Array) -> Array:
    return values[first, second]


@reference
def index_put_reference(values: Array, first: Array, second: Array, new: Array, *, accumulate: bool) -> Array:
    result = values.copy()
    rows, columns = np.broadcast_arrays(first, second)
    wanted = np.broadcast_to(new, rows.shape + values.shape[2:])
    for place in np.ndindex(*rows.shape):
        target = rows[place], columns[place]
        result[target] = wanted[place] + (result[target] if accumulate else 0)
    return result


@reference
def masked_fill_reference(values: Array, mask: Array, *, value: float) -> Array:
    return np.where(mask, np.asarray(value).astype(values.dtype), values)


embedding_reference: Reference = reference(lambda index, weight: weight[index])


@reference
def embedding_bag_reference(index: Array, weight: Array, *, mode: str) -> Array:
    reducer: Any = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    bags = [reducer(weight[bag], axis=0) for bag in index]
    return np.array(bags, weight.dtype).reshape(index.shape[0], weight.shape[1])


@reference
def one_hot_reference(index: Array, *, num_classes: int) -> Array:
    return (index[..., None] == np.arange(num_classes)).astype(np.int64)
