"""Order among numbers: keys that compare as PyTorch orders elements, sorting, and selection by rank.

NaN is larger than every number, whatever its sign; zeros are equal. Sorts are
stable, and of equal elements the first one counts. Not here: operators
(``lowering.aten.sorting``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy

from .. import hlo
from ..dtypes import INT16, INT32, INT64, UINT64, DType
from ..hlo import Value
from .common import counter

_INTEGERS = {16: INT16, 32: INT32, 64: INT64}
_REMEMBERED = 1 << 22
"""Up to so many elements their keys are computed once; the keys of more than that, which no cache holds,
anew in every pass."""
_PART = 1 << 18
"""Elements of a part whose keys are computed and compared together."""


def order_key(x: Value, descending: bool = False) -> Value:
    """int32, or int64 for numbers of more than 32 bits: smaller where an element of ``x`` comes earlier."""
    if x.dtype.is_floating:
        key = _key_of_float(x)
    elif x.dtype is UINT64:
        key = hlo.bitcast(x, INT64) ^ hlo.lowest(INT64)
    else:
        key = hlo.convert(x, _key_dtype(x.dtype))
    return ~key if descending else key


def _key_dtype(dtype: DType) -> DType:
    """Of the :func:`order_key` of numbers of ``dtype``."""
    small = dtype.bits < 32 or dtype is INT32 or (dtype.is_floating and dtype.bits == 32)
    return INT32 if small else INT64


def _key_of_float(x: Value) -> Value:
    """The bits as an integer, which orders positive numbers; negative ones are mirrored."""
    integer = _INTEGERS[x.dtype.bits]
    bits = hlo.convert(hlo.bitcast(x, integer), _key_dtype(x.dtype))
    top = integer.bits - 1
    size = bits & ((1 << top) - 1)
    key = hlo.select(bits < 0, -size, size)
    return hlo.select(size >= nan_key(x.dtype), nan_key(x.dtype), key)


def nan_key(dtype: DType) -> int:
    """The :func:`order_key` of NaN, ascending: that of infinity, which is its bits, and one."""
    return int(numpy.asarray(math.inf, dtype.numpy).view(f"int{dtype.bits}")) + 1


def sorted_with_indices(x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """``x`` (1-d or more) sorted stably along ``axis``, and where each element stood (int64)."""
    indices = sorted_order(order_key(x, descending), axis)
    return hlo.take_along(x, indices, axis), indices


def sorted_order(keys: Value, axis: int) -> Value:
    """Where the elements of sorted :func:`order_key` s stood: int64, stable.

    A key of 32 bits and its index make one number of 64, which engines sort several
    times faster than pairs.
    """
    size = keys.shape[axis]
    index = hlo.index_of(keys, axis)
    if keys.dtype is INT64 or not isinstance(size, int) or size >= 1 << 31:
        return hlo.sort([keys, index], axis, lambda a, b, *_: a < b, stable=True)[1]
    packed = hlo.shift_left(hlo.convert(keys, INT64), hlo.full(keys.shape, 32, INT64)) | index
    (ordered,) = hlo.sort([packed], axis, lambda a, b: a < b, stable=True)
    return ordered & ((1 << 31) - 1)


def first_in_order(keys: Value, axis: int, count: int) -> Value:
    """Where the ``count`` smallest keys stand, in order: int64 with ``axis`` as long as ``count``.

    Few of many are looked for in the blocks with the smallest minima only: at least as
    many elements as there are such blocks come before all those of another block.
    """
    size = keys.shape[axis]
    if not isinstance(size, int) or not 0 < count <= size // 16:
        return hlo.slice_axis(sorted_order(keys, axis), axis, 0, count)
    last = keys.rank - 1
    lead = [dim for i, dim in enumerate(keys.shape) if i != axis]
    rows, length = hlo.product(lead), math.isqrt(size // count)
    blocks = -(-size // length)
    table = hlo.reshape(hlo.move_axis(keys, axis, last), (rows, size))
    table = hlo.reshape(
        hlo.pad_axis(table, hlo.highest(keys.dtype), 1, 0, blocks * length - size), (rows, blocks, length)
    )
    best = hlo.slice_axis(sorted_order(hlo.reduce_min(table, [2]), 1), 1, 0, count)
    (best,) = hlo.sort([best], 1, lambda a, b: a < b, stable=True)  # equal elements keep their order
    candidates = hlo.reshape(_rows_of(table, best), (rows, count * length))
    place = hlo.slice_axis(sorted_order(candidates, 1), 1, 0, count)
    width = hlo.full_like(place, length)
    found = hlo.take_along(best, place / width, 1) * length + hlo.remainder(place, width)
    return hlo.move_axis(hlo.reshape(found, (*lead, count)), last, axis)


def _rows_of(table: Value, chosen: Value) -> Value:
    """``(rows, count, length)``: of each matrix in ``(rows, blocks, length)`` the chosen lines."""
    return hlo.gather(
        table,
        chosen,
        offset_dims=[2],
        collapsed=[1],
        start_index_map=[1],
        index_vector_dim=2,
        slice_sizes=[1, 1, table.shape[2]],
        operand_batching=[0],
        indices_batching=[0],
    )


def key_of_rank(x: Value, rank: Value, axis: int) -> Value:
    """The key of the element of ``x`` that has ``rank`` others before it; ``axis`` is of size 1 in both.

    Two bits of the key in each step: half as many passes over the elements as it has bits.
    """
    shape, count = rank.shape, _counting(x, axis)
    dtype = _key_dtype(x.dtype)
    rank = hlo.convert(rank, counter(x.shape[axis]))

    def step(i: Value, low: Value) -> list[Value]:
        place = hlo.broadcast_to(top - i - i, shape)
        candidates = [low + hlo.shift_left(hlo.full(shape, part, dtype), place) for part in (1, 2, 3)]
        for candidate, before in zip(candidates, count(candidates), strict=True):
            low = hlo.select(hlo.reshape(before, shape) <= rank, candidate, low)
        return [low]

    first = hlo.full(shape, hlo.lowest(dtype), dtype)
    top = hlo.scalar(dtype.bits - 2, dtype)
    return hlo.fori(hlo.scalar(dtype.bits // 2, dtype), step, [first])[0]


def _counting(x: Value, axis: int) -> Callable[[Sequence[Value]], list[Value]]:
    """How many keys along ``axis`` are smaller than each of some candidates, as a function of these."""
    size = x.shape[axis]

    def smaller(keys: Value, candidates: Sequence[Value]) -> list[Value]:
        below = [keys < hlo.broadcast_to(candidate, keys.shape) for candidate in candidates]
        flags = [hlo.convert(each, counter(size)) for each in below]
        return hlo.reduce(flags, [0] * len(flags), [axis], _added)

    elements = hlo.static_dim(hlo.product(x.shape))
    if not isinstance(size, int) or elements is None or elements <= _REMEMBERED:
        keys = order_key(x)
        return lambda candidates: smaller(keys, candidates)
    length = max(1, _PART * size // elements)
    whole, zero = size // length, hlo.scalar(0, INT64)
    sizes = [length if i == axis else int(dim) for i, dim in enumerate(x.shape)]

    def by_parts(candidates: Sequence[Value]) -> list[Value]:
        def step(i: Value, *counts: Value) -> list[Value]:
            part = hlo.dynamic_slice(x, [i * length if j == axis else zero for j in range(x.rank)], sizes)
            return _added(*counts, *smaller(order_key(part), candidates))

        rest = order_key(hlo.slice_axis(x, axis, whole * length, size))
        return hlo.fori(hlo.scalar(whole, INT64), step, smaller(rest, candidates))

    return by_parts


def _added(*counts: Value) -> list[Value]:
    """The sums of the first and the second half of ``counts``, one by one."""
    half = len(counts) // 2
    return [a + b for a, b in zip(counts[:half], counts[half:], strict=True)]


def first_equal(keys: Value, key: Value, axis: int, rather: int | None = None) -> Value:
    """Where ``key``, or ``rather`` if that occurs, stands first along ``axis``, of size 1 in ``key``: int64.

    Degrees and indices are reduced together, which an engine does without an array of indices in memory.
    """
    counted = counter(keys.shape[axis])
    degree = hlo.convert(hlo.eq(keys, hlo.broadcast_to(key, keys.shape)), INT32)
    if rather is not None:
        degree = hlo.select(hlo.eq(keys, rather), 2, degree)

    def better(best: Value, at: Value, other: Value, where: Value) -> list[Value]:
        moves = (other > best) | (hlo.eq(other, best) & (where < at))
        return [hlo.select(moves, other, best), hlo.select(moves, where, at)]

    places = hlo.index_of(keys, axis, counted)
    _, first = hlo.reduce([degree, places], [0, hlo.highest(counted)], [axis], better)
    return hlo.convert(hlo.reshape(first, key.shape), INT64)
