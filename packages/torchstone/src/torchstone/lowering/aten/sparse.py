"""Sparse tensors, given by their dense parts: conversion, coalescing, products, softmax, 2:4 sparsity.

Schemas are in :mod:`..own`, semantics in ``compiler.operators.sparse``. Each operator is a
composite. An entry whose index lies past the end is padding: scatter drops it, and gather
replaces it with zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import hlo
from ...dtypes import COMPLEX, EVERY, FLOATING, INT8, INT64, INTEGRAL, NUMERIC, STANDARD
from ...hlo import Value
from ..common import is_empty
from ..composites import composed
from ..own import own
from ..registry import Spec, lowers
from .masking import ordinal
from .scattering import add, assign

Specs = Sequence[Spec]

_INDICES = frozenset({INT64})
"""The dtypes of most of these operators, whose first operand is the tensor of indices."""
_UNTESTED = "PyTorch's sparse operators support it only in part"
_REST = dict.fromkeys(EVERY - STANDARD, _UNTESTED)


def _numbered(indices: Value, size: Sequence[int]) -> Value:
    """Return the row-major number of each entry's place, ``[n]``; padding gets one past the last."""
    total = hlo.product(size)
    number, there = hlo.full((indices.shape[1],), 0, INT64), None
    for axis, extent in enumerate(size):
        index = hlo.squeeze(hlo.slice_axis(indices, 0, axis, axis + 1), [0])
        number = number * extent + index
        inside = index < extent
        there = inside if there is None else there & inside
    return number if there is None else hlo.select(there, number, total)


def _coordinates(number: Value, size: Sequence[int]) -> Value:
    """Invert :func:`_numbered`: ``[dims, n]``, with coordinates past the end for numbers past the end."""
    past = number >= hlo.product(size)
    rows, rest = [], number
    for extent in reversed(size):
        whole = hlo.full_like(rest, max(extent, 1))
        rows.append(hlo.select(past, extent, hlo.remainder(rest, whole)))
        rest = rest / whole
    return hlo.concatenate([hlo.expand_dims(row, [0]) for row in reversed(rows)], 0)


def _along(flags: Value, like: Value) -> Value:
    """Repeat ``[n]`` over the other axes of ``like``, whose first axis has n elements."""
    return hlo.broadcast_in_dim(flags, like.shape, [0])


def _picked(rows: Value, index: Value) -> Value:
    """Return ``rows[index]``; zero where ``index`` is past the end."""
    count = rows.shape[0]
    if is_empty(rows.shape) or is_empty(index.shape):
        return hlo.full((*index.shape, *rows.shape[1:]), 0, rows.dtype)
    found = hlo.take(rows, hlo.minimum(index, count - 1), 0)
    return hlo.select(_along(index < count, found), found, 0)


def _gathered(values: Value, index: Value, count: int) -> Value:
    """Add up values with equal ``index``: ``[count, …]``; values past the end are dropped."""
    zeros = hlo.full((count, *values.shape[1:]), 0, values.dtype)
    return zeros if is_empty(values.shape) else hlo.put(zeros, index, values, 0, add)


def _row(indices: Value, axis: int) -> Value:
    return hlo.squeeze(hlo.slice_axis(indices, 0, axis, axis + 1), [0])


# Conversion ---------------------------------------------------------------------------


@lowers(own.to_sparse_coo.default, dtypes=STANDARD, gaps=_REST)
def to_sparse_coo(self: Value, sparse_dim: int, bound: int, out: Specs) -> list[Value | None]:
    """Indices and values of nonzeros in row-major order, padded to ``bound``, and the number of nonzeros."""

    def kernel(x: Value) -> list[Value]:
        size = list(x.shape[:sparse_dim])
        total = hlo.product(size)
        rows = hlo.reshape(x, (total, *x.shape[sparse_dim:]))
        nonzero = hlo.ne(rows, 0)
        if rows.rank > 1:
            nonzero = hlo.reduce_or(nonzero, list(range(1, rows.rank)))
        where = hlo.select(nonzero, ordinal(nonzero), bound)
        places = hlo.iota((total,), 0, INT64)
        numbers = hlo.put(hlo.full((bound,), total, INT64), where, places, 0, assign)
        count = hlo.reduce_sum(hlo.convert(nonzero, INT64), [0])
        return [_coordinates(numbers, size), _picked(rows, numbers), count]

    return composed("to_sparse_coo", [self], kernel, out, {"sparse_dim": sparse_dim, "bound": bound})


@lowers(own.sparse_to_dense.default, dtypes=_INDICES)
def sparse_to_dense(indices: Value, values: Value, size: list[int], out: Spec) -> list[Value | None]:
    """A dense tensor of ``size``; values with equal indices are added."""

    def kernel(indices: Value, values: Value) -> Value:
        return _gathered(values, _numbered(indices, size), hlo.product(size))

    return composed("sparse_to_dense", [indices, values], kernel, out, {"size": size})


@lowers(own.sparse_take.default, dtypes=STANDARD, gaps=_REST)
def sparse_take(self: Value, indices: Value, out: Spec) -> list[Value | None]:
    """The elements of a dense tensor at ``indices``."""

    def kernel(x: Value, indices: Value) -> Value:
        size = list(x.shape[: indices.shape[0]])
        rows = hlo.reshape(x, (hlo.product(size), *x.shape[len(size) :]))
        return _picked(rows, _numbered(indices, size))

    return composed("sparse_take", [self, indices], kernel, out)


# Equal indices ------------------------------------------------------------------------


def _merged(indices: Value, values: Value, size: Sequence[int]) -> list[Value]:
    """Return the sorted unique indices, their summed values, their number, and where each entry went."""
    numbers = _numbered(indices, size)
    count, total = indices.shape[1], hlo.product(size)
    entries = hlo.iota((count,), 0, INT64)
    ordered, order = hlo.sort([numbers, entries], 0, lambda a, b, *_: a < b, stable=True)
    before = hlo.pad_axis(hlo.slice_axis(ordered, 0, 0, max(count - 1, 0)), -1, 0, 1 if count else 0, 0)
    first = hlo.ne(ordered, before)
    group = ordinal(first) + hlo.convert(first, INT64) - 1
    places = hlo.put(hlo.full((count,), 0, INT64), order, group, 0, assign)
    distinct = hlo.put(hlo.full((count,), total, INT64), group, ordered, 0, assign)
    present = hlo.convert(first & (ordered < total), INT64)
    summed = _gathered(values, hlo.select(numbers < total, places, count), count)
    return [_coordinates(distinct, size), summed, hlo.reduce_sum(present, [0]), places]


@lowers(own.sparse_coalesce.default, dtypes=_INDICES)
def sparse_coalesce(indices: Value, values: Value, size: list[int], out: Specs) -> list[Value | None]:
    """Sorted unique indices, the sums of their values, their number, and where each entry went."""

    def kernel(indices: Value, values: Value) -> list[Value]:
        return _merged(indices, values, size)

    return composed("sparse_coalesce", [indices, values], kernel, out, {"size": size})


@lowers(own.sparse_sum.default, dtypes=_INDICES)
def sparse_sum(
    indices: Value, values: Value, size: list[int], dim: list[int], out: Specs
) -> list[Value | None]:
    """The coalesced sum over the sparse dimensions ``dim``; returns what ``sparse_coalesce`` returns."""
    rest = [axis for axis in range(len(size)) if axis not in dim]

    def kernel(indices: Value, values: Value) -> list[Value]:
        there = _numbered(indices, size) < hlo.product(size)
        rows = [hlo.select(there, _row(indices, axis), size[axis]) for axis in rest]
        kept = hlo.concatenate([hlo.expand_dims(row, [0]) for row in rows], 0)
        return _merged(kept, values, [size[axis] for axis in rest])

    return composed("sparse_sum", [indices, values], kernel, out, {"size": size, "dim": dim})


# Products -----------------------------------------------------------------------------


def _product(indices: Value, values: Value, size: Sequence[int], mat2: Value) -> Value:
    rows = _picked(mat2, _row(indices, 1))
    return _gathered(rows * _along(values, rows), _row(indices, 0), size[0])


def _sampled(indices: Value, mat1: Value, mat2: Value) -> Value:
    left = _picked(mat1, _row(indices, 0))
    right = _picked(hlo.transpose(mat2, [1, 0]), _row(indices, 1))
    return hlo.reduce_sum(left * right, [1])


@lowers(own.sparse_mm.default, dtypes=_INDICES)
def sparse_mm(indices: Value, values: Value, size: list[int], mat2: Value, out: Spec) -> list[Value | None]:
    """A sparse matrix of ``size`` times a dense one."""

    def kernel(indices: Value, values: Value, mat2: Value) -> Value:
        return _product(indices, values, size, mat2)

    return composed("sparse_mm", [indices, values, mat2], kernel, out, {"size": size})


@lowers(own.sparse_addmm.default, dtypes=NUMERIC)
def sparse_addmm(
    self: Value,
    indices: Value,
    values: Value,
    size: list[int],
    mat2: Value,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    out: Spec,
) -> list[Value | None]:
    """``beta * self + alpha * sparse @ mat2``."""

    def kernel(x: Value, indices: Value, values: Value, mat2: Value) -> Value:
        made = _product(indices, values, size, mat2)
        return hlo.broadcast_to(x, made.shape) * beta + made * alpha

    attributes: dict[str, hlo.Attribute] = {"size": size, "beta": beta, "alpha": alpha}
    return composed("sparse_addmm", [self, indices, values, mat2], kernel, out, attributes)


@lowers(own.sparse_sampled_mm.default, dtypes=_INDICES)
def sparse_sampled_mm(indices: Value, mat1: Value, mat2: Value, out: Spec) -> list[Value | None]:
    """The elements of ``mat1 @ mat2`` at ``indices``."""
    return composed("sparse_sampled_mm", [indices, mat1, mat2], _sampled, out)


@lowers(own.sparse_sampled_addmm.default, dtypes=NUMERIC)
def sparse_sampled_addmm(
    self: Value, indices: Value, mat1: Value, mat2: Value, *, beta: Any = 1, alpha: Any = 1, out: Spec
) -> list[Value | None]:
    """``beta * self + alpha * (mat1 @ mat2)`` at ``indices``."""

    def kernel(x: Value, indices: Value, mat1: Value, mat2: Value) -> Value:
        return x * beta + _sampled(indices, mat1, mat2) * alpha

    attributes: dict[str, hlo.Attribute] = {"beta": beta, "alpha": alpha}
    return composed("sparse_sampled_addmm", [self, indices, mat1, mat2], kernel, out, attributes)


# Softmax over the entries -------------------------------------------------------------

_NO_SOFTMAX = dict.fromkeys(EVERY - FLOATING, "softmax does not accept it, so there is no gradient")


def _grouped(indices: Value, size: Sequence[int], dim: int) -> tuple[Value, int]:
    """Return each entry's row number along ``dim`` (padding: past the end), and the number of rows."""
    rest = [axis for axis in range(len(size)) if axis != dim]
    there = _numbered(indices, size) < hlo.product(size)
    groups = hlo.product([size[axis] for axis in rest])
    if not rest:
        return hlo.select(there, hlo.full(there.shape, 0, INT64), groups), groups
    rows = hlo.concatenate([hlo.expand_dims(_row(indices, axis), [0]) for axis in rest], 0)
    return hlo.select(there, _numbered(rows, [size[axis] for axis in rest]), groups), groups


@lowers(own.sparse_softmax.default, dtypes=_INDICES)
def sparse_softmax(
    indices: Value, values: Value, size: list[int], dim: int, log: bool, out: Spec
) -> list[Value | None]:
    """(Log-)softmax along ``dim`` over the stored entries; no index occurs twice."""

    def kernel(indices: Value, values: Value) -> Value:
        if is_empty(values.shape):
            return values
        group, groups = _grouped(indices, size, dim)
        lowest = hlo.full((groups, *values.shape[1:]), float("-inf"), values.dtype)
        top = hlo.put(lowest, group, values, 0, hlo.maximum)
        shifted = values - _picked(top, group)
        exponentials = hlo.exponential(shifted)
        sums = _picked(_gathered(exponentials, group, groups), group)
        made = shifted - hlo.log(sums) if log else exponentials / sums
        return hlo.select(_along(group < groups, made), made, 0.0)

    attributes: dict[str, hlo.Attribute] = {"size": size, "dim": dim, "log": log}
    return composed("sparse_softmax", [indices, values], kernel, out, attributes)


@lowers(own.sparse_softmax_backward.default, dtypes=FLOATING, gaps=_NO_SOFTMAX)
def sparse_softmax_backward(
    grad: Value, output: Value, indices: Value, size: list[int], dim: int, log: bool, out: Spec
) -> list[Value | None]:
    """Gradient of :func:`sparse_softmax`."""

    def kernel(grad: Value, output: Value, indices: Value) -> Value:
        group, groups = _grouped(indices, size, dim)
        sums = _picked(_gathered(grad if log else grad * output, group, groups), group)
        made = grad - hlo.exponential(output) * sums if log else output * (grad - sums)
        return hlo.select(_along(group < groups, made), made, 0.0)

    attributes: dict[str, hlo.Attribute] = {"size": size, "dim": dim, "log": log}
    return composed("sparse_softmax_backward", [grad, output, indices], kernel, out, attributes)


# 2:4 sparsity -------------------------------------------------------------------------

_PATTERN: dict[str, hlo.Attribute] = {"format": "semi_structured", "pattern": "2:4"}
_HALVED = FLOATING | COMPLEX | INTEGRAL


@lowers(own.to_sparse_semi_structured.default, dtypes=_HALVED, gaps=dict.fromkeys(EVERY - _HALVED, _UNTESTED))
def to_sparse_semi_structured(self: Value, out: Specs) -> list[Value | None]:
    """The two nonzeros of each four neighbors in a row, and their places (int8, 0 to 3)."""

    def kernel(x: Value) -> list[Value]:
        groups = hlo.reshape(x, (x.shape[0], x.shape[1] // 4, 4))
        place = hlo.index_of(groups, 2)
        # Sort nonzeros to the front; nonzeros and zeros each keep their order.
        key = hlo.select(hlo.ne(groups, 0), place, place + 4)
        _, chosen = hlo.sort([key, place], 2, lambda a, b, *_: a < b, stable=True)
        (chosen,) = hlo.sort([hlo.slice_axis(chosen, 2, 0, 2)], 2, lambda a, b: a < b, stable=True)
        return [hlo.take_along(groups, chosen, 2), hlo.convert(chosen, INT8)]

    return composed("to_sparse_semi_structured", [self], kernel, out, _PATTERN)


@lowers(own.semi_structured_to_dense.default, dtypes=_HALVED, gaps=dict.fromkeys(EVERY - _HALVED, _UNTESTED))
def semi_structured_to_dense(values: Value, places: Value, out: Spec) -> list[Value | None]:
    """The dense matrix that :func:`to_sparse_semi_structured` split into ``values`` and ``places``."""

    def kernel(values: Value, places: Value) -> Value:
        shape = (values.shape[0], values.shape[1] // 2, 2)
        index = hlo.convert(hlo.reshape(places, shape), INT64)
        zeros = hlo.full((*shape[:2], 4), 0, values.dtype)
        return hlo.put_along(zeros, index, hlo.reshape(values, shape), 2, assign)

    return composed("semi_structured_to_dense", [values, places], kernel, out, _PATTERN)
