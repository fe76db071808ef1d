"""Operators that move elements; padding looks up the source position of each element along each axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .common import Array, Implementation


def _flatten(values: Array, *, start_dim: int, end_dim: int) -> Array:
    sizes = list(values.shape) or [1]
    first, behind = start_dim % len(sizes), end_dim % len(sizes) + 1
    return values.reshape(*sizes[:first], math.prod(sizes[first:behind]), *sizes[behind:])


def _transpose(values: Array, *, dim0: int, dim1: int) -> Array:
    order = list(range(values.ndim))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return values.transpose(order)


def _squeeze(values: Array, *, dim: Any) -> Array:
    dims = {one % max(values.ndim, 1) for one in (dim if isinstance(dim, tuple) else (dim,))}
    return values.reshape([size for i, size in enumerate(values.shape) if i not in dims or size != 1])


def _unsqueeze(values: Array, *, dim: int) -> Array:
    sizes = list(values.shape)
    sizes.insert(dim % (values.ndim + 1), 1)
    return values.reshape(sizes)


def _broadcast_to(values: Array, *, size: tuple[int, ...]) -> Array:
    result = np.empty(size, values.dtype)
    result[...] = values
    return result


def _cat(*values: Array, dim: int) -> Array:
    shape = list(values[0].shape)
    shape[dim] = sum(one.shape[dim] for one in values)
    result = np.empty(shape, values[0].dtype)
    lines, start = np.moveaxis(result, dim, 0), 0
    for one in values:
        lines[start : start + one.shape[dim]] = np.moveaxis(one, dim, 0)
        start += one.shape[dim]
    return result


def _stack(*values: Array, dim: int) -> Array:
    return _cat(*(_unsqueeze(one, dim=dim) for one in values), dim=dim)


def _flip(values: Array, *, dims: tuple[int, ...]) -> Array:
    turned = {one % values.ndim for one in dims}
    return values[tuple(slice(None, None, -1 if i in turned else 1) for i in range(values.ndim))]


def _roll(values: Array, *, shifts: Any, dims: Any) -> Array:
    if dims is None:
        return _roll(values.reshape(-1), shifts=shifts, dims=0).reshape(values.shape)
    pairs = zip(shifts, dims, strict=True) if isinstance(shifts, tuple) else ((shifts, dims),)
    for shift, dim in pairs:
        size = values.shape[dim]
        cut = -shift % size if size else 0
        lines = np.moveaxis(values, dim, 0)
        values = np.moveaxis(np.concatenate([lines[cut:], lines[:cut]]), 0, dim)
    return values


def _tile(values: Array, *, dims: tuple[int, ...]) -> Array:
    rank = max(values.ndim, len(dims))
    result = values.reshape((1,) * (rank - values.ndim) + values.shape)
    for i, count in enumerate((1,) * (rank - len(dims)) + tuple(dims)):
        kept = (*result.shape[:i], 0, *result.shape[i + 1 :])
        result = np.concatenate([result] * count, axis=i) if count else np.empty(kept, values.dtype)
    return result


def _repeat_interleave(values: Array, *, repeats: int, dim: int | None) -> Array:
    if dim is None:
        return _repeat_interleave(values.reshape(-1), repeats=repeats, dim=0)
    places = np.arange(values.shape[dim] * repeats) // max(repeats, 1)
    return np.take(values, places, axis=dim)


def _triangle(values: Array, keep: Callable[[Array, int], Array], diagonal: int) -> Array:
    rows, columns = values.shape[-2:]
    distance = np.arange(columns) - np.arange(rows)[:, None]
    return np.where(keep(distance, diagonal), values, values.dtype.type(0))


def _diagonal(values: Array, *, offset: int, dim1: int, dim2: int) -> Array:
    planes = np.moveaxis(values, (dim1, dim2), (-2, -1))
    length = min(planes.shape[-2] + min(offset, 0), planes.shape[-1] - max(offset, 0))
    steps = np.arange(max(length, 0))
    return planes[..., steps + max(-offset, 0), steps + max(offset, 0)]


def _diag_embed(values: Array, *, offset: int, dim1: int, dim2: int) -> Array:
    size = values.shape[-1] + abs(offset)
    on_diagonal = np.arange(size) - np.arange(size)[:, None] == offset
    lead = [(0, 0)] * (values.ndim - 1)
    rows = np.pad(values, [*lead, (max(-offset, 0), max(offset, 0))])
    planes = np.where(on_diagonal, rows[..., :, None], values.dtype.type(0))
    return np.moveaxis(planes, (-2, -1), (dim1, dim2))


def _slice(values: Array, *, dim: int, start: int, end: int, step: int) -> Array:
    return np.moveaxis(np.moveaxis(values, dim, 0)[start:end:step], 0, dim)


def _narrow(values: Array, *, dim: int, start: int, length: int) -> Array:
    return _slice(values, dim=dim, start=start, end=start + length, step=1)


def _movedim(values: Array, *, source: int, destination: int) -> Array:
    order = [i for i in range(values.ndim) if i != source % values.ndim]
    order.insert(destination % values.ndim, source % values.ndim)
    return values.transpose(order)


def _rot90(values: Array, *, k: int, dims: tuple[int, ...]) -> Array:
    for _ in range(k % 4):  # a quarter turn: exchange the two dimensions, then reverse the first
        values = _flip(np.swapaxes(values, *dims), dims=(dims[0],))
    return values


def _unfold(values: Array, *, dimension: int, size: int, step: int) -> Array:
    dimension %= values.ndim
    found = sliding_window_view(values, size, axis=dimension)
    return _slice(found, dim=dimension, start=0, end=found.shape[dimension], step=step)


def _constant_pad(values: Array, *, pad: tuple[int, ...], mode: str, value: float) -> Array:
    for i in range(len(pad) // 2):
        axis, before = values.ndim - 1 - i, pad[2 * i]
        size = values.shape[axis]
        result = np.full(
            (*values.shape[:axis], size + before + pad[2 * i + 1], *values.shape[axis + 1 :]),
            value,
            values.dtype,
        )
        lines, source = np.moveaxis(result, axis, 0), np.moveaxis(values, axis, 0)
        first, behind = max(before, 0), min(before + size, len(lines))
        lines[first:behind] = source[first - before : behind - before]
        values = result
    return values


def _pad(position: Callable[[Array, int], Array]) -> Implementation:
    """Pad with elements of the input: ``position(places, size)`` gives the source index of each place."""

    def pad_each(values: Array, *, pad: tuple[int, ...], mode: str) -> Array:
        for i in range(len(pad) // 2):
            axis = values.ndim - 1 - i
            size = values.shape[axis]
            places = np.arange(-pad[2 * i], size + pad[2 * i + 1])
            values = np.take(values, position(places, size), axis=axis)
        return values

    return pad_each


def _mirrored(places: Array, size: int) -> Array:
    inside = np.abs(places)
    return np.where(inside < size, inside, 2 * (size - 1) - inside)


OPERATORS: dict[str, Implementation] = {
    "reshape": lambda values, *, shape: values.reshape(shape),
    "flatten": _flatten,
    "permute": lambda values, *, dims: values.transpose([one % values.ndim for one in dims]),
    "transpose": _transpose,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "broadcast_to": _broadcast_to,
    "cat": _cat,
    "stack": _stack,
    "flip": _flip,
    "roll": _roll,
    "tile": _tile,
    "repeat_interleave": _repeat_interleave,
    "tril": lambda values, *, diagonal: _triangle(values, np.less_equal, diagonal),
    "triu": lambda values, *, diagonal: _triangle(values, np.greater_equal, diagonal),
    "diagonal": _diagonal,
    "diag_embed": _diag_embed,
    "narrow": _narrow,
    "slice": _slice,
    "select": lambda values, *, dim, index: np.moveaxis(values, dim, 0)[index],
    "movedim": _movedim,
    "rot90": _rot90,
    "unfold": _unfold,
    "constant_pad": _constant_pad,
    "reflection_pad": _pad(_mirrored),
    "replication_pad": _pad(lambda places, size: np.clip(places, 0, size - 1)),
    "circular_pad": _pad(lambda places, size: places % size),
}
