"""StableHLO's index arithmetic, for kernels in NumPy: padding, and where windows are in an operand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy
from numpy.typing import ArrayLike, NDArray

from ._stablehlo import Operation

Array = NDArray[Any]


def padded(
    x: Array, value: ArrayLike, low: Sequence[int], high: Sequence[int], interior: Sequence[int]
) -> Array:
    """Pad ``x`` with ``value``, as StableHLO's ``pad`` does.

    ``low`` and ``high`` are the widths before and after ``x``; negative widths cut elements off. ``interior``
    is the width between its elements.
    """
    edges = list(zip(x.shape, low, high, interior, strict=True))
    whole = numpy.full([max(0, n + (n - 1) * gap) + a + b for n, a, b, gap in edges], value, x.dtype)
    places = [numpy.arange(n) * (1 + gap) + a for n, a, _, gap in edges]
    held = [(one >= 0) & (one < size) for one, size in zip(places, whole.shape, strict=True)]
    whole[numpy.ix_(*(one[inside] for one, inside in zip(places, held, strict=True)))] = x[numpy.ix_(*held)]
    return whole


def window(x: Array, start: ArrayLike, sizes: Sequence[int]) -> tuple[slice, ...]:
    """Return the window of ``x`` that begins at ``start``, or as close to it as the window fits."""
    begin = numpy.clip(start, 0, numpy.subtract(x.shape, sizes))
    return tuple(map(slice, begin, begin + numpy.asarray(sizes)))


def corners(
    op: Operation, indices: Array, rank: int
) -> Iterator[tuple[tuple[int, ...], NDArray[numpy.int64]]]:
    """Yield each position in the index table of a ``gather`` or ``scatter``, and where its window begins.

    The window is in an operand of ``rank`` axes; it may begin or end outside the operand.
    """
    if op.name == "gather":
        axes, batch, own = op.start_index_map, op.operand_batching_dims, op.start_indices_batching_dims
    else:
        axes = op.scattered_dims_to_operand_dims
        batch, own = op.input_batching_dims, op.scatter_indices_batching_dims
    last = op.index_vector_dim
    vectors = numpy.moveaxis(indices, last, -1) if last < indices.ndim else indices[..., None]
    for place in numpy.ndindex(vectors.shape[:-1]):
        start = numpy.zeros(rank, numpy.int64)
        start[axes] = vectors[place]
        start[batch] = [place[axis - (axis > last)] for axis in own]
        yield place, start
