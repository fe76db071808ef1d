"""References of operators that move elements, including padding: they compute source positions.

Each result is ``flat[positions]``, where ``positions`` is the same movement applied to
the numbers of the elements. Positions are easy to check, and do not depend on the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import Array, Reference, reference


def _movement(function: Callable[..., Array]) -> Reference:
    """Return a reference that moves the elements' numbers with ``function``, and takes these elements."""

    def move(values: Array, **attributes: Any) -> Array:
        positions = function(np.arange(values.size).reshape(values.shape), **attributes)
        return values.reshape(-1)[positions]

    return reference(move)


def _swapped(values: Array, *, dim0: int, dim1: int) -> Array:
    return np.swapaxes(values, dim0, dim1) if values.ndim else values


def _flattened(values: Array, *, start_dim: int, end_dim: int) -> Array:
    if not values.ndim:
        return values.reshape(1)
    first, last = start_dim % values.ndim, end_dim % values.ndim
    merged = int(np.prod(values.shape[first : last + 1]))
    return values.reshape(*values.shape[:first], merged, *values.shape[last + 1 :])


def _squeezed(values: Array, *, dim: int | tuple[int, ...]) -> Array:
    dims = (dim,) if isinstance(dim, int) else dim
    ones = tuple(one % values.ndim for one in dims if values.ndim and values.shape[one] == 1)
    return np.squeeze(values, axis=ones)


def _sliced(values: Array, *, dim: int, start: int, end: int, step: int) -> Array:
    kept = np.arange(values.shape[dim])[start:end:step]
    return np.take(values, kept, axis=dim)


def _narrowed(values: Array, *, dim: int, start: int, length: int) -> Array:
    return np.take(values, np.arange(start, start + length), axis=dim)


def _unfolded(values: Array, *, dimension: int, size: int, step: int) -> Array:
    count = (values.shape[dimension] - size) // step + 1
    windows = np.arange(count)[:, None] * step + np.arange(size)
    found = np.take(values, windows.reshape(-1), axis=dimension)
    dimension %= values.ndim
    split = found.reshape(*values.shape[:dimension], count, size, *values.shape[dimension + 1 :])
    return np.moveaxis(split, dimension + 1, -1)


def _rolled(values: Array, *, shifts: Any, dims: Any) -> Array:
    return np.roll(values, shifts, axis=dims)


reshape_reference = _movement(lambda values, shape: values.reshape(shape))
flatten_reference = _movement(_flattened)
permute_reference = _movement(lambda values, dims: np.transpose(values, dims))
transpose_reference = _movement(_swapped)
squeeze_reference = _movement(_squeezed)
unsqueeze_reference = _movement(lambda values, dim: np.expand_dims(values, dim))
broadcast_to_reference = _movement(lambda values, size: np.broadcast_to(values, size))
flip_reference = _movement(lambda values, dims: np.flip(values, dims))
roll_reference = _movement(_rolled)
tile_reference = _movement(lambda values, dims: np.tile(values, dims))
repeat_interleave_reference = _movement(lambda values, repeats, dim: np.repeat(values, repeats, axis=dim))
diagonal_reference = _movement(
    lambda values, offset, dim1, dim2: np.diagonal(values, offset=offset, axis1=dim1, axis2=dim2)
)
narrow_reference = _movement(_narrowed)
slice_reference = _movement(_sliced)
select_reference = _movement(lambda values, dim, index: np.take(values, index, axis=dim))
movedim_reference = _movement(lambda values, source, destination: np.moveaxis(values, source, destination))
rot90_reference = _movement(lambda values, k, dims: np.rot90(values, k, axes=dims))
unfold_reference = _movement(_unfolded)
cat_reference = reference(lambda *values, dim: np.concatenate(values, axis=dim))
stack_reference = reference(lambda *values, dim: np.stack(values, axis=dim))
tril_reference = reference(lambda values, *, diagonal: np.tril(values, diagonal))
triu_reference = reference(lambda values, *, diagonal: np.triu(values, diagonal))


@reference
def diag_embed_reference(values: Array, *, offset: int, dim1: int, dim2: int) -> Array:
    side = values.shape[-1] + abs(offset)
    result = np.zeros((*values.shape[:-1], side, side), values.dtype)
    for i in range(values.shape[-1]):
        result[..., i + max(-offset, 0), i + max(offset, 0)] = values[..., i]
    return np.moveaxis(result, (-2, -1), (dim1, dim2))


def _sides(pad: tuple[int, ...], rank: int) -> list[tuple[int, int]]:
    """Return ``(before, after)`` for each dimension, starting with the first."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    return [(0, 0)] * (rank - len(pairs)) + pairs[::-1]


@reference
def constant_pad_reference(values: Array, *, pad: tuple[int, ...], mode: str, value: float) -> Array:
    sides = _sides(pad, values.ndim)
    cut = tuple(
        slice(max(-before, 0), size - max(-after, 0))
        for size, (before, after) in zip(values.shape, sides, strict=True)
    )
    grown = [(max(before, 0), max(after, 0)) for before, after in sides]
    return np.pad(values[cut], grown, constant_values=np.asarray(value).astype(values.dtype))


def _padded(mode: Any) -> Reference:
    def fill(values: Array, *, pad: tuple[int, ...]) -> Array:
        return np.pad(values, _sides(pad, values.ndim), mode=mode)

    return _movement(lambda values, *, pad, mode: fill(values, pad=pad))


reflection_pad_reference = _padded("reflect")
replication_pad_reference = _padded("edge")
circular_pad_reference = _padded("wrap")
