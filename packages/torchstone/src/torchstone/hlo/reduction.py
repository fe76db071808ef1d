"""Reductions, windows, scans and sorting, with Python bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy

from ..dtypes import INT64, DType
from ._mlir import ir, stablehlo
from .control import Body, build_region, fori, results, while_
from .elementwise import maximum, minimum, select
from .indexing import take_along
from .shape import (
    broadcast_in_dim,
    broadcast_to,
    concatenate,
    dynamic_slice,
    dynamic_update_slice,
    index_of,
    move_axis,
    reshape,
    slice_axis,
)
from .value import Dim, Number, Shape, Value, dim_scalar, plain, scalar, tensor_type

Reducer = Callable[[Value, Value], Value]


def reduce(
    values: Sequence[Value], inits: Sequence[Value | Number], dims: Sequence[int], body: Body
) -> list[Value]:
    """Fold ``values`` (equal shapes) along ``dims``; ``body(*accumulators, *elements)``."""
    shape = values[0].shape
    kept = [dim for axis, dim in enumerate(shape) if axis not in {d % len(shape) for d in dims}]
    specs = [(kept, value.dtype) for value in values]
    starts = [i if isinstance(i, Value) else scalar(i, v.dtype) for i, v in zip(inits, values, strict=True)]
    operation = stablehlo.ReduceOp(
        [tensor_type(kept, value.dtype) for value in values],
        [value.ir for value in values],
        [start.ir for start in starts],
        sorted(d % len(shape) for d in dims),
    )
    build_region(operation.regions[0], [((), value.dtype) for value in values] * 2, body)
    return results(operation, specs)


def reduce_sum(x: Value, dims: Sequence[int]) -> Value:
    """Sum over ``dims`` in the value's own dtype."""
    return reduce([x], [0], dims, lambda a, b: a + b)[0]


def reduce_max(x: Value, dims: Sequence[int]) -> Value:
    """Maximum over ``dims`` (NaN wins); the dtype's lowest value for an empty range."""
    return reduce([x], [lowest(x.dtype)], dims, maximum)[0]


def reduce_min(x: Value, dims: Sequence[int]) -> Value:
    """Minimum over ``dims`` (NaN wins); the dtype's highest value for an empty range."""
    return reduce([x], [highest(x.dtype)], dims, minimum)[0]


def reduce_and(x: Value, dims: Sequence[int]) -> Value:
    """True where all elements along ``dims`` of a bool value are."""
    return reduce([x], [True], dims, lambda a, b: a & b)[0]


def reduce_or(x: Value, dims: Sequence[int]) -> Value:
    """True where any element along ``dims`` of a bool value is."""
    return reduce([x], [False], dims, lambda a, b: a | b)[0]


def lowest(dtype: DType) -> Number:
    """The identity of ``maximum``: −inf, False or the smallest integer."""
    if dtype.is_floating:
        return float("-inf")
    return 0 if dtype.is_unsigned else -(1 << (dtype.bits - 1))


def highest(dtype: DType) -> Number:
    """The identity of ``minimum``: inf, True or the largest integer."""
    if dtype.is_floating:
        return float("inf")
    return True if dtype.is_bool else (1 << (dtype.bits - (dtype.kind == "int"))) - 1


def reduce_window(
    values: Sequence[Value],
    inits: Sequence[Value | Number],
    window: Sequence[int],
    body: Body,
    *,
    strides: Sequence[int] | None = None,
    padding: Sequence[tuple[int, int]] | None = None,
    base_dilations: Sequence[int] | None = None,
    window_dilations: Sequence[int] | None = None,
) -> list[Value]:
    """Fold every window of ``values`` (equal shapes); all lists have one entry per axis.

    Padding is filled with the init values.
    """
    rank = values[0].rank
    strides = list(strides or [1] * rank)
    padding = list(padding or [(0, 0)] * rank)
    base = list(base_dilations or [1] * rank)
    dilations = list(window_dilations or [1] * rank)
    shape: list[Dim] = []
    for axis, size in enumerate(values[0].shape):
        dilated = (size - 1) * base[axis] + 1 if base[axis] != 1 and size != 0 else size
        reach = (window[axis] - 1) * dilations[axis] + 1
        span = dilated + sum(padding[axis]) - reach
        count = span // strides[axis] + 1
        shape.append(max(count, 0) if isinstance(count, int) else count)
    out = plain(shape)
    starts = [i if isinstance(i, Value) else scalar(i, v.dtype) for i, v in zip(inits, values, strict=True)]
    operation = stablehlo.ReduceWindowOp(
        [tensor_type(out, value.dtype) for value in values],
        [value.ir for value in values],
        [start.ir for start in starts],
        list(window),
        window_strides=strides,
        base_dilations=base,
        window_dilations=dilations,
        padding=ir.DenseIntElementsAttr.get(numpy.asarray(padding, dtype=numpy.int64).reshape(rank, 2)),
    )
    build_region(operation.regions[0], [((), value.dtype) for value in values] * 2, body)
    return results(operation, [(out, value.dtype) for value in values])


def select_and_scatter(
    operand: Value,
    source: Value,
    init: Value | Number,
    select: Callable[[Value, Value], Value],
    scatter: Reducer,
    *,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
) -> Value:
    """Scatter each element of ``source`` to the element of its window that ``select`` prefers."""
    start = init if isinstance(init, Value) else scalar(init, operand.dtype)
    operation = stablehlo.SelectAndScatterOp(
        operand.ir.type,
        operand.ir,
        source.ir,
        start.ir,
        window_dimensions=list(window),
        window_strides=list(strides),
        padding=ir.DenseIntElementsAttr.get(numpy.asarray(padding, dtype=numpy.int64).reshape(-1, 2)),
    )
    pair = [((), operand.dtype)] * 2
    build_region(operation.regions[0], pair, select)
    build_region(operation.regions[1], pair, scatter)
    return Value(operation.result, operand.shape, operand.dtype)


def sort(
    values: Sequence[Value], axis: int, comparator: Callable[..., Value], *, stable: bool
) -> list[Value]:
    """Sort ``values`` together along ``axis``; ``comparator(a0, b0, a1, b1, …)`` is "a before b"."""
    operation = stablehlo.SortOp(
        [value.ir.type for value in values],
        [value.ir for value in values],
        dimension=axis,
        is_stable=stable,
    )
    pairs = [((), value.dtype) for value in values for _ in range(2)]
    build_region(operation.regions[0], pairs, comparator)
    return results(operation, [(value.shape, value.dtype) for value in values])


def associative_scan(values: Sequence[Value], axis: int, combine: Body) -> list[Value]:
    """Inclusive prefix scan along ``axis`` in O(n) work.

    ``combine(*earlier, *later)`` is associative and works elementwise on whole values of
    any shape. An axis of unknown size takes O(n log n) work (Hillis and Steele 1986).
    """

    def combined(earlier: Sequence[Value], later: Sequence[Value]) -> list[Value]:
        result = combine(*earlier, *later)
        return [result] if isinstance(result, Value) else list(result)

    size = values[0].shape[axis]
    if not isinstance(size, int):
        return _symbolic_scan(values, axis, combined)
    if size <= _UNROLLED or not all(isinstance(dim, int) for dim in values[0].shape):
        return _unrolled_scan(values, axis, size, combined)
    return _blocked_scan(values, axis, size, combined)


_UNROLLED = 16
"""Up to this size a scan is a few operations in a row; longer rows of them XLA fuses at a high price."""

Combined = Callable[[Sequence[Value], Sequence[Value]], list[Value]]


def _unrolled_scan(values: Sequence[Value], axis: int, size: int, combined: Combined) -> list[Value]:
    current, distance = list(values), 1
    while distance < size:
        done = [slice_axis(value, axis, 0, distance) for value in current]
        earlier = [slice_axis(value, axis, 0, size - distance) for value in current]
        later = [slice_axis(value, axis, distance, size) for value in current]
        rest = combined(earlier, later)
        current = [concatenate(pair, axis) for pair in zip(done, rest, strict=True)]
        distance *= 2
    return current


def _blocked_scan(values: Sequence[Value], axis: int, size: int, combined: Combined) -> list[Value]:
    """√n blocks side by side, each scanned by a loop over its √n elements; then what lies before each block.

    The surplus of the last block holds any values: nothing comes after it.
    """
    length = math.isqrt(size - 1) + 1
    count = -(-size // length)
    rows = [_in_blocks(value, axis, count, length) for value in values]
    zero = scalar(0, INT64)

    # Read from one buffer and written to another: where several values depend on each other, writing in place
    # would make the engine copy whole buffers in every step.
    def step(i: Value, *state: Value) -> list[Value]:
        last, done = state[: len(values)], state[len(values) :]
        at = [[i + 1, *(zero for _ in row.shape[1:])] for row in rows]
        own = [dynamic_slice(row, start, (1, *row.shape[1:])) for row, start in zip(rows, at, strict=True)]
        new = combined(last, own)
        return [*new, *(dynamic_update_slice(*update) for update in zip(done, new, at, strict=True))]

    first = [slice_axis(row, 0, 0, 1) for row in rows]
    scanned = fori(scalar(length - 1, INT64), step, [*first, *rows])
    totals = associative_scan(
        [reshape(value, value.shape[1:]) for value in scanned[: len(values)]],
        axis,
        lambda *pair: combined(pair[: len(values)], pair[len(values) :]),
    )
    done = scanned[len(values) :]
    earlier = [slice_axis(total, axis, 0, count - 1) for total in totals]
    later = [slice_axis(row, axis + 1, 1, count) for row in done]
    before = [
        broadcast_in_dim(one, row.shape, list(range(1, row.rank)))
        for one, row in zip(earlier, later, strict=True)
    ]
    rest = combined(before, later)
    whole = [
        concatenate([slice_axis(row, axis + 1, 0, 1), one], axis + 1)
        for row, one in zip(done, rest, strict=True)
    ]
    return [
        _from_blocks(row, value.shape, axis, length * count) for row, value in zip(whole, values, strict=True)
    ]


def _in_blocks(x: Value, axis: int, count: int, length: int) -> Value:
    """``(…, n, …)`` as ``(length, …, count, …)``, the last block filled up with the first elements."""
    surplus = count * length - int(x.shape[axis])
    if surplus:
        x = concatenate([x, slice_axis(x, axis, 0, surplus)], axis)
    split = reshape(x, (*x.shape[:axis], count, length, *x.shape[axis + 1 :]))
    return move_axis(split, axis + 1, 0)


def _from_blocks(x: Value, shape: Shape, axis: int, size: int) -> Value:
    """The inverse of :func:`_in_blocks`."""
    joined = reshape(move_axis(x, 0, axis + 1), (*shape[:axis], size, *shape[axis + 1 :]))
    return slice_axis(joined, axis, 0, shape[axis])


def _symbolic_scan(values: Sequence[Value], axis: int, combined: Combined) -> list[Value]:
    """:func:`associative_scan` along an axis whose size is known at run time only: the doubling is a loop."""
    index = index_of(values[0], axis)

    def step(distance: Value, *current: Value) -> list[Value]:
        source = index - broadcast_to(distance, index.shape)
        inside = source >= 0
        earlier = [take_along(value, maximum(source, 0), axis) for value in current]
        made = combined(earlier, current)
        chosen = [select(inside, new, old) for new, old in zip(made, current, strict=True)]
        return [distance * 2, *chosen]

    size = dim_scalar(values[0].shape[axis])
    return while_(lambda distance, *_: distance < size, step, [scalar(1, INT64), *values])[1:]
