"""Reductions, windows, scans and sorting, with Python bodies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..dtypes import DType
from ._mlir import stablehlo
from .control import Body, build_region, results
from .dimensions import Dim, is_static, product, static_dim
from .elementwise import maximum, minimum, optimization_barrier
from .shape import reshape
from .value import Number, Value, scalar, tensor_type

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


_IN_A_ROW = 32
"""The most floats that a sum over several axes adds in a row: the same as in XLA's summation trees."""


def reduce_sum(x: Value, dims: Sequence[int]) -> Value:
    """Sum over ``dims`` in the value's own dtype; long float sums go axis by axis, the longest first.

    Rounding errors grow with the number of additions in a row. XLA CPU splits an axis
    longer than 32 into a tree, but it adds all elements of several shorter axes in a row,
    and it merges consecutive reductions. Summing axis by axis makes errors ten times smaller.
    Adjacent axes of known sizes are merged into one, unless XLA would split that axis again.
    """
    axes = sorted({d % x.rank for d in dims})
    if x.dtype.is_floating or x.dtype.is_complex:
        if is_static(x.shape) and math.prod(_lengths(x, axes)) > _IN_A_ROW:
            x, axes = _joined(x, axes)
        while len(axes) > 1 and math.prod(_lengths(x, axes)) > _IN_A_ROW:
            lengths = _lengths(x, axes)
            longest = axes.pop(lengths.index(max(lengths)))
            x = optimization_barrier(_added(x, [longest]))
            axes = [axis - (axis > longest) for axis in axes]
    return _added(x, axes)


def _joined(x: Value, axes: Sequence[int]) -> tuple[Value, list[int]]:
    """Merge adjacent ``axes`` of ``x``; return the result and the positions of its axes to reduce."""
    runs: list[list[int]] = []
    for axis in range(x.rank):
        if axis in axes and axis - 1 in axes:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    shape: list[Dim] = []
    found: list[int] = []
    for run in runs:
        sizes = [x.shape[axis] for axis in run]
        lengths = _lengths(x, run)
        # XLA would split an axis merged of such short ones again, and add all of its elements in a row.
        apart = max(lengths) <= _IN_A_ROW and math.prod(lengths) > _IN_A_ROW**2
        dims = sizes if apart else [product(sizes)]
        found += [len(shape) + i for i in range(len(dims))] if run[0] in axes else []
        shape += dims
    return reshape(x, shape), found


def _added(x: Value, axes: Sequence[int]) -> Value:
    return reduce([x], [0], axes, lambda a, b: a + b)[0]


def _lengths(x: Value, axes: Sequence[int]) -> list[float]:
    """Return the sizes of axes; infinity for symbolic sizes, which may be arbitrarily large."""
    known = [static_dim(x.shape[axis]) for axis in axes]
    return [math.inf if size is None else size for size in known]


def reduce_max(x: Value, dims: Sequence[int]) -> Value:
    """Maximum over ``dims`` (NaN wins); the dtype's lowest value for an empty range."""
    return reduce([x], [lowest(x.dtype)], dims, maximum)[0]


def reduce_min(x: Value, dims: Sequence[int]) -> Value:
    """Minimum over ``dims`` (NaN wins); the dtype's highest value for an empty range."""
    return reduce([x], [highest(x.dtype)], dims, minimum)[0]


def reduce_and(x: Value, dims: Sequence[int]) -> Value:
    """True where all elements along ``dims`` of a bool value are True."""
    return reduce([x], [True], dims, lambda a, b: a & b)[0]


def reduce_or(x: Value, dims: Sequence[int]) -> Value:
    """True where any element along ``dims`` of a bool value is True."""
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


def sort(
    values: Sequence[Value], axis: int, comparator: Callable[..., Value], *, stable: bool
) -> list[Value]:
    """Sort ``values`` together along ``axis``; ``comparator(a0, b0, a1, b1, …)`` means "a before b"."""
    operation = stablehlo.SortOp(
        [value.ir.type for value in values],
        [value.ir for value in values],
        dimension=axis,
        is_stable=stable,
    )
    pairs = [((), value.dtype) for value in values for _ in range(2)]
    build_region(operation.regions[0], pairs, comparator)
    return results(operation, [(value.shape, value.dtype) for value in values])
