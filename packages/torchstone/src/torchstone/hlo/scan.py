"""Prefix scans with a Python body that combines whole values.

Each scan runs as loops over small tiles that stay in a processor's cache, so time
stays proportional to the number of elements. Not here: the operators that scan
(``lowering.aten.scan``), reductions (``reduction``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..dtypes import INT32, INT64
from .control import Body, fori, while_
from .dimensions import product
from .elementwise import eq, maximum, minimum, select
from .indexing import take_along
from .shape import (
    broadcast_to,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    index_of,
    iota,
    pad_axis,
    reshape,
    slice_axis,
)
from .value import Value, dim_scalar, full, scalar

_UNROLLED = 16
"""Up to this size a scan is a few operations in a row; XLA takes very long to fuse more of them."""
_LANES = 256
"""How many elements a loop step combines at once, if possible; fewer do not repay its fixed cost."""
_COLUMNS = 4
"""How many elements of each lane a loop step combines one after another."""
_TILE = 1 << 16
"""Elements per tile: its operands and results stay in a processor's second-level cache."""

Values = Sequence[Value]
Combined = Callable[[Values, Values], list[Value]]


def associative_scan(values: Values, axis: int, combine: Body) -> list[Value]:
    """Inclusive prefix scan along ``axis`` in O(n) work.

    ``combine(*earlier, *later)`` is associative and works elementwise on whole values of
    any shape. An axis of unknown size takes O(n log n) work (Hillis and Steele 1986).
    """

    def combined(earlier: Values, later: Values) -> list[Value]:
        result = combine(*earlier, *later)
        return [result] if isinstance(result, Value) else list(result)

    shape = values[0].shape
    size = shape[axis]
    if not isinstance(size, int):
        return _symbolic_scan(values, axis, combined)
    if size <= _UNROLLED or 0 in shape or not all(isinstance(dim, int) for dim in shape):
        return _unrolled_scan(values, axis, size, combined)
    merged = (product(shape[:axis]), size, product(shape[axis + 1 :]))
    scanned = _scan_rows([reshape(value, merged) for value in values], combined)
    return [reshape(value, shape) for value in scanned]


def _unrolled_scan(values: Values, axis: int, size: int, combined: Combined) -> list[Value]:
    current, distance = list(values), 1
    while distance < size:
        done = [slice_axis(value, axis, 0, distance) for value in current]
        earlier = [slice_axis(value, axis, 0, size - distance) for value in current]
        later = [slice_axis(value, axis, distance, size) for value in current]
        rest = combined(earlier, later)
        current = [concatenate(pair, axis) for pair in zip(done, rest, strict=True)]
        distance *= 2
    return current


def _sizes(values: Values) -> tuple[int, int, int]:
    """Scan values ``(rows, size, width)`` along the middle axis."""
    rows, size, width = (dim for dim in values[0].shape if isinstance(dim, int))
    return rows, size, width


def _scan_rows(values: Values, combined: Combined) -> list[Value]:
    """Scan tile by tile: each tile holds some whole rows, or one of the successive parts of one row."""
    rows, size, width = _sizes(values)
    group, length = max(1, _TILE // (size * width)), _TILE // (rows * width)
    if rows > group:
        return _scan_groups(values, group, combined)
    if size > length >= _LANES:
        return _scan_parts(values, length, combined)
    return _scan_tile(values, combined)


def _scan_groups(values: Values, group: int, combined: Combined) -> list[Value]:
    """Scan ``group`` rows at a time; the last group repeats rows of the previous one to be full."""
    rows, size, width = _sizes(values)
    zero = scalar(0, INT64)

    def step(i: Value, *done: Value) -> list[Value]:
        at = [minimum(i * group, rows - group), zero, zero]
        own = [dynamic_slice(value, at, (group, size, width)) for value in values]
        return [
            dynamic_update_slice(whole, part, at)
            for whole, part in zip(done, _scan_rows(own, combined), strict=True)
        ]

    return fori(scalar(-(-rows // group), INT64), step, _blank(values))


def _scan_parts(values: Values, length: int, combined: Combined) -> list[Value]:
    """Scan ``length`` elements of each row at a time; the last part repeats some to be full."""
    rows, size, width = _sizes(values)
    zero, final = scalar(0, INT64), size - length

    def step(i: Value, *state: Value) -> list[Value]:
        before, done = state[: len(values)], state[len(values) :]
        start = minimum(i * length, final)
        at = [zero, start, zero]
        own = [dynamic_slice(value, at, (rows, length, width)) for value in values]
        scanned = _scan_tile(own, combined, before, eq(i, 0))
        last = [zero, minimum(start + length, final) - start - 1, zero]
        return [
            *(dynamic_slice(value, last, (rows, 1, width)) for value in scanned),
            *(dynamic_update_slice(whole, part, at) for whole, part in zip(done, scanned, strict=True)),
        ]

    anything = [slice_axis(value, 1, 0, 1) for value in values]
    state = fori(scalar(-(-size // length), INT64), step, [*anything, *_blank(values)])
    return state[len(values) :]


def _blank(values: Values) -> list[Value]:
    """The result buffers. Loops read one buffer and write another: if several values depend on each
    other, writing in place would make the engine copy whole buffers in each step."""
    return [full(value.shape, 0, value.dtype) for value in values]


def _scan_tile(
    values: Values, combined: Combined, before: Values | None = None, first: Value | None = None
) -> list[Value]:
    """Scan parts of a row side by side, one lane each, in a loop; then combine each lane with its past.

    ``before`` precedes the tile, ``(rows, 1, width)``, unless the tile is the ``first`` one (0-d bool).
    The surplus of the last lane holds arbitrary values, because nothing follows it.
    """
    rows, size, width = _sizes(values)
    lanes = min(max(1, _LANES // (rows * width)), math.isqrt(size))
    length = -(-size // (lanes * _COLUMNS)) * _COLUMNS
    lanes = -(-size // length)
    split = (rows, lanes, length, width)
    scanned = _scan_lanes(
        [reshape(pad_axis(value, 0, 1, 0, lanes * length - size), split) for value in values], combined
    )
    if lanes == 1 and before is None:
        return [slice_axis(reshape(value, (rows, length, width)), 1, 0, size) for value in scanned]
    totals = [reshape(slice_axis(value, 2, length - 1, length), (rows, lanes, width)) for value in scanned]
    totals = associative_scan(totals, 1, lambda *pair: combined(pair[: len(values)], pair[len(values) :]))
    applies = iota(split, 1, INT32) > 0
    if before is not None and first is not None:
        with_before = combined([broadcast_to(value, totals[0].shape) for value in before], totals)
        alone = broadcast_to(first, totals[0].shape)
        totals = [select(alone, old, new) for old, new in zip(totals, with_before, strict=True)]
        applies = applies | broadcast_to(~first, split)
    heads = before if before is not None else [slice_axis(total, 1, 0, 1) for total in totals]
    earlier = [
        concatenate([head, slice_axis(total, 1, 0, lanes - 1)], 1)
        for head, total in zip(heads, totals, strict=True)
    ]
    spread = [broadcast_to(reshape(value, (rows, lanes, 1, width)), split) for value in earlier]
    whole = [select(applies, new, old) for new, old in zip(combined(spread, scanned), scanned, strict=True)]
    joined = [reshape(value, (rows, lanes * length, width)) for value in whole]
    return [slice_axis(value, 1, 0, size) for value in joined]


def _scan_lanes(values: Values, combined: Combined) -> list[Value]:
    """Scan ``(rows, lanes, length, width)`` along the lanes, a few columns in each step."""
    rows, lanes, length, width = values[0].shape
    zero = scalar(0, INT64)

    def columns(block: Values, before: Values | None) -> tuple[list[Value], list[Value]]:
        """Scan a few columns after ``before``; also return the last column."""
        made: list[list[Value]] = []
        for column in range(_COLUMNS):
            own = [slice_axis(value, 2, column, column + 1) for value in block]
            before = own if before is None else combined(before, own)
            made.append(list(before))
        return [concatenate(parts, 2) for parts in zip(*made, strict=True)], made[-1]

    def step(i: Value, *state: Value) -> list[Value]:
        last, done = state[: len(values)], state[len(values) :]
        at = [zero, zero, (i + 1) * _COLUMNS, zero]
        own = [dynamic_slice(value, at, (rows, lanes, _COLUMNS, width)) for value in values]
        made, newest = columns(own, last)
        return [*newest, *(dynamic_update_slice(*update, at) for update in zip(done, made, strict=True))]

    begun, last = columns([slice_axis(value, 2, 0, _COLUMNS) for value in values], None)
    buffers = [pad_axis(value, 0, 2, 0, length - _COLUMNS) for value in begun]
    return fori(scalar(length // _COLUMNS - 1, INT64), step, [*last, *buffers])[len(values) :]


def _symbolic_scan(values: Values, axis: int, combined: Combined) -> list[Value]:
    """Compute :func:`associative_scan` along an axis of run-time size: a loop doubles the distance.

    The axis gets one more element during the loop, because XLA cannot take elements from an empty axis.
    """
    count = values[0].shape[axis]
    longer = [pad_axis(value, 0, axis, 0, 1) for value in values]
    index = index_of(longer[0], axis)

    def step(distance: Value, *current: Value) -> list[Value]:
        source = index - broadcast_to(distance, index.shape)
        inside = source >= 0
        earlier = [take_along(value, maximum(source, 0), axis) for value in current]
        made = combined(earlier, current)
        chosen = [select(inside, new, old) for new, old in zip(made, current, strict=True)]
        return [distance * 2, *chosen]

    size = dim_scalar(count)
    made = while_(lambda distance, *_: distance < size, step, [scalar(1, INT64), *longer])[1:]
    return [slice_axis(value, axis, 0, count) for value in made]
