"""Order among numbers: keys that compare as PyTorch orders elements; sorting; selection by rank.

NaN is larger than every number, whatever its sign; zeros are equal. Sorts are
stable, and the first of equal elements counts. Not here: operators
(``lowering.aten.sorting``).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence

import numpy

from .. import hlo
from ..dtypes import INT16, INT32, INT64, UINT64, DType
from ..hlo import Value
from .common import counter

_INTEGERS = {16: INT16, 32: INT32, 64: INT64}

_OUTSIDE_CACHES = 1 << 22
"""From this many 32-bit keys on, they do not fit into caches, and each pass reads them from memory."""
_BLOCK = 1024
"""The number of keys in a block; the keys of a block are counted in 16 bits."""


def order_key(x: Value, descending: bool = False) -> Value:
    """Return integer keys with the order of the elements of ``x``: int32 if 32 bits suffice, else int64."""
    if x.dtype.is_floating:
        key = _key_of_float(x)
    elif x.dtype is UINT64:
        key = hlo.bitcast(x, INT64) ^ hlo.lowest(INT64)
    else:
        key = hlo.convert(x, _key_dtype(x.dtype))
    return ~key if descending else key


def _key_dtype(dtype: DType) -> DType:
    """The dtype of the :func:`order_key` of numbers of ``dtype``."""
    small = dtype.bits < 32 or dtype is INT32 or (dtype.is_floating and dtype.bits == 32)
    return INT32 if small else INT64


def _key_of_float(x: Value) -> Value:
    """Return the bits as an integer, which orders positive numbers; negative numbers are mirrored."""
    integer = _INTEGERS[x.dtype.bits]
    bits = hlo.convert(hlo.bitcast(x, integer), _key_dtype(x.dtype))
    top = integer.bits - 1
    size = bits & ((1 << top) - 1)
    key = hlo.select(bits < 0, -size, size)
    return hlo.select(size >= nan_key(x.dtype), nan_key(x.dtype), key)


def nan_key(dtype: DType) -> int:
    """Return the ascending :func:`order_key` of NaN: the bits of infinity (which are its key) plus one."""
    return int(numpy.asarray(math.inf, dtype.numpy).view(f"int{dtype.bits}")) + 1


def sorted_with_indices(x: Value, axis: int, descending: bool = False) -> tuple[Value, Value]:
    """Sort ``x`` (1-d or more) stably along ``axis``; also return each element's former position (int64)."""
    indices = sorted_order(order_key(x, descending), axis)
    return hlo.take_along(x, indices, axis), indices


def sorted_order(keys: Value, axis: int) -> Value:
    """Sort keys (:func:`order_key`) stably, and return the former position of each one: int64.

    A 32-bit key and its index form one 64-bit number, which engines sort several
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
    """Return the positions of the ``count`` smallest keys in order, as int64, along ``axis``.

    If ``count`` is small, only the ``count`` blocks with the smallest minima are searched. Other blocks
    cannot hold a result: each of the searched blocks has an element that comes before theirs.
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
    """Take the ``chosen`` lines of each matrix in ``(rows, blocks, length)``: ``(rows, count, length)``."""
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
    """Return the key of the element of ``x`` that has ``rank`` elements before it in order.

    ``axis`` has size 1 in ``rank`` and in the result.
    Keys that do not fit into caches are read in halves, because memory then limits the speed.
    The first search reads all high halves. The second reads the low halves of the keys that share
    the high half found; all other keys move to the ends of the order.
    """
    keys, size = order_key(x), x.shape[axis]
    rank = hlo.convert(rank, counter(size))
    many = hlo.is_static(x.shape) and hlo.product(x.shape) >= _OUTSIDE_CACHES and size >= _BLOCK
    if not many or keys.dtype is not INT32:
        return _search([keys], rank, axis)
    parts = _in_blocks(keys, axis)
    high = [hlo.convert(hlo.shift_right_arithmetic(part, 16), INT16) for part in parts]
    found = _search(high, rank, axis)
    low = []
    for part, upper in zip(parts, high, strict=True):
        shared = _beside(found, upper, axis)
        lower = hlo.convert((part & 0xFFFF) + hlo.lowest(INT16), INT16)
        lower = hlo.select(upper > shared, hlo.highest(INT16), lower)
        low.append(hlo.select(upper < shared, hlo.lowest(INT16), lower))
    rest = hlo.convert(_search(low, rank, axis), INT32) - hlo.lowest(INT16)
    return hlo.shift_left(hlo.convert(found, INT32), 16) | rest


def _in_blocks(keys: Value, axis: int) -> list[Value]:
    """Split ``axis`` into two, blocks and their elements; also return the leftover elements, if any."""
    size = keys.shape[axis]
    assert isinstance(size, int)
    blocks, over = divmod(size, _BLOCK)
    main = hlo.slice_axis(keys, axis, 0, size - over)
    main = hlo.reshape(main, (*keys.shape[:axis], blocks, _BLOCK, *keys.shape[axis + 1 :]))
    return [main, hlo.slice_axis(keys, axis, size - over, size)] if over else [main]


def _beside(one: Value, keys: Value, axis: int) -> Value:
    """Repeat ``one``, of size 1 along ``axis``, for each of ``keys``, which may be in blocks."""
    if keys.rank > one.rank:
        one = hlo.reshape(one, (*one.shape[:axis], 1, 1, *one.shape[axis + 1 :]))
    return hlo.broadcast_to(one, keys.shape)


def _search(parts: Sequence[Value], rank: Value, axis: int) -> Value:
    """Return the key that has ``rank`` others before it, among parts that may be in blocks.

    Each step finds two bits of the key, so there are half as many passes over the elements as
    bits. Within a block, smaller keys are counted in 16 bits, because an engine adds twice as
    many of these at a time.
    """
    shape, dtype = rank.shape, parts[0].dtype

    def counted(keys: Value, candidates: Sequence[Value]) -> list[Value]:
        counts = [keys < _beside(candidate, keys, axis) for candidate in candidates]
        along = [(axis + 1, INT16), (axis, rank.dtype)] if keys.rank > rank.rank else [(axis, rank.dtype)]
        for one, wide in along:
            flags = [hlo.convert(each, wide) for each in counts]
            counts = hlo.reduce(flags, [0] * len(flags), [one], _by_pairs(operator.add))
        return [hlo.reshape(each, shape) for each in counts]

    def step(i: Value, low: Value) -> list[Value]:
        place = hlo.broadcast_to(dtype.bits - 2 - i - i, shape)
        candidates = [low + hlo.shift_left(hlo.full(shape, part, dtype), place) for part in (1, 2, 3)]
        counts = zip(*(counted(keys, candidates) for keys in parts), strict=True)
        for candidate, before in zip(candidates, counts, strict=True):
            low = hlo.select(functools.reduce(operator.add, before) <= rank, candidate, low)
        return [low]

    first = hlo.full(shape, hlo.lowest(dtype), dtype)
    return hlo.fori(hlo.scalar(dtype.bits // 2, dtype), step, [first])[0]


def _by_pairs(combine: Callable[[Value, Value], Value]) -> Callable[..., list[Value]]:
    """Return the body of a reduction of several arrays at once that applies ``combine`` to each array."""

    def body(*values: Value) -> list[Value]:
        half = len(values) // 2
        return [combine(a, b) for a, b in zip(values[:half], values[half:], strict=True)]

    return body


def first_equal(keys: Value, key: Value, axis: int, rather: int | None = None) -> Value:
    """Return the first position of ``key`` along ``axis``, or of ``rather`` if that occurs: int64.

    ``axis`` has size 1 in ``key`` and in the result.
    """
    counted = counter(keys.shape[axis])
    nowhere = hlo.highest(counted)
    places = hlo.index_of(keys, axis, counted)
    sought = [hlo.broadcast_to(key, keys.shape)]
    sought += [] if rather is None else [hlo.full_like(keys, rather)]
    standing = [hlo.select(hlo.eq(keys, each), places, nowhere) for each in sought]
    first, *better = hlo.reduce(standing, [nowhere] * len(standing), [axis], _by_pairs(hlo.minimum))
    for place in better:
        first = hlo.select(place < nowhere, place, first)
    return hlo.convert(hlo.reshape(first, key.shape), INT64)
