"""Batches of matrices: the small operations that the factorizations use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ... import hlo
from ...dtypes import FLOAT64, INT32, DType
from ...hlo import Value
from ..common import is_empty


def batched(x: Value, core: int = 2) -> Value:
    """Merge all leading axes, except the last ``core`` ones, into one."""
    lead, tail = x.shape[: x.rank - core], x.shape[x.rank - core :]
    return hlo.reshape(x, (hlo.product(lead), *tail))


def broadcast_batch(x: Value, lead: Sequence[hlo.Dim], core: int = 2) -> Value:
    """Broadcast the leading axes of ``x`` to ``lead``, and merge them into one batch axis."""
    return batched(hlo.broadcast_to(x, (*lead, *x.shape[x.rank - core :])), core)


def epsilon(dtype: DType) -> float:
    """The distance from 1 to the next larger number of a dtype's real part."""
    return 2.0**-52 if dtype.real is FLOAT64 else 2.0**-23


def smallest(dtype: DType) -> float:
    """The smallest normal number of a dtype's real part."""
    return 2.0**-1022 if dtype.real is FLOAT64 else 2.0**-126


def transposed(x: Value) -> Value:
    order = list(range(x.rank))
    return hlo.transpose(x, [*order[:-2], order[-1], order[-2]])


def adjoint(x: Value) -> Value:
    """Conjugate transpose."""
    return transposed(hlo.conj(x))


def product(a: Value, b: Value) -> Value:
    """``a @ b``; zeros where the inner dimension is empty."""
    shape = (*a.shape[:-1], b.shape[-1])
    if is_empty((*shape, a.shape[-1])):
        return hlo.full(shape, 0, a.dtype)
    return hlo.dot(a, b)


def row_of(x: Value) -> Value:
    """The row number of each element."""
    return hlo.iota(x.shape, x.rank - 2, INT32)


def column_of(x: Value) -> Value:
    """The column number of each element."""
    return hlo.iota(x.shape, x.rank - 1, INT32)


def lower(x: Value, below: int = 0) -> Value:
    """Keep the elements at least ``below`` rows under the diagonal; zeros elsewhere."""
    return hlo.select(row_of(x) - column_of(x) >= below, x, hlo.zeros_like(x))


def upper(x: Value, above: int = 0) -> Value:
    """Keep the elements at least ``above`` columns right of the diagonal; zeros elsewhere."""
    return hlo.select(column_of(x) - row_of(x) >= above, x, hlo.zeros_like(x))


def identity(shape: Sequence[hlo.Dim], dtype: DType) -> Value:
    """Ones on the diagonal of ``[batch, rows, columns]``."""
    zeros = hlo.full(shape, 0, dtype)
    return hlo.select(hlo.eq(row_of(zeros), column_of(zeros)), hlo.full_like(zeros, 1), zeros)


def with_unit_diagonal(x: Value) -> Value:
    return hlo.select(hlo.eq(row_of(x), column_of(x)), hlo.full_like(x, 1), x)


def diagonal(x: Value) -> Value:
    """The main diagonal, ``[batch, min(rows, columns)]``."""
    size = hlo.at_most(*x.shape[-2:])
    square = hlo.slice_(x, [0, 0, 0], [x.shape[0], size, size])
    kept = hlo.select(hlo.eq(row_of(square), column_of(square)), square, hlo.zeros_like(square))
    return hlo.reduce_sum(kept, [1])


def column(x: Value, index: Value) -> Value:
    """Column ``index`` (0-d) as ``[batch, rows, 1]``."""
    return hlo.dynamic_slice(x, [_zero(index), _zero(index), index], [*x.shape[:-1], 1])


def row(x: Value, index: Value) -> Value:
    """Row ``index`` (0-d) as ``[batch, 1, columns]``."""
    return hlo.dynamic_slice(x, [_zero(index), index, _zero(index)], [x.shape[0], 1, x.shape[2]])


def element(x: Value, i: Value, j: Value) -> Value:
    """Element ``(i, j)`` (0-d) as ``[batch, 1, 1]``."""
    return column(row(x, i), j)


def put_column(x: Value, new: Value, index: Value) -> Value:
    """Replace column ``index`` (0-d) of ``x`` by ``[batch, rows, 1]``."""
    return hlo.dynamic_update_slice(x, new, [_zero(index), _zero(index), index])


def _zero(index: Value) -> Value:
    return hlo.scalar(0, index.dtype)


def spread(x: Value, shape: Sequence[hlo.Dim]) -> Value:
    """Broadcast axes of size 1 (``[batch, rows, 1]``, ``[batch, 1, 1]``, …) to ``shape``."""
    return hlo.broadcast_to(x, shape)


def scaled_columns(x: Value, factors: Value) -> Value:
    """``x · diag(factors)`` for ``[batch, columns]`` factors, which may be real if ``x`` is complex."""
    wide = hlo.expand_dims(hlo.convert(factors, x.dtype), [1])
    return x * hlo.broadcast_to(wide, x.shape)


def index(number: int) -> Value:
    """Convert a loop count or a column number to a 0-d value."""
    return hlo.scalar(number, INT32)


def squared_size(x: Value) -> Value:
    """``|x|²`` of every element, real."""
    re = hlo.real(x)
    return re * re + hlo.imag(x) * hlo.imag(x) if x.dtype.is_complex else re * re


def taken_columns(x: Value, order: Value) -> Value:
    """Take the columns of ``x`` in the given order (``[batch, columns]`` of column numbers)."""
    shape = (*x.shape[:-1], order.shape[-1])
    return hlo.take_along(x, hlo.broadcast_to(hlo.expand_dims(order, [1]), shape), 2)


def taken_rows(x: Value, order: Value) -> Value:
    """Take the rows of ``x`` in the given order (``[batch, rows]`` of row numbers)."""
    shape = (x.shape[0], order.shape[-1], x.shape[-1])
    return hlo.take_along(x, hlo.broadcast_to(hlo.expand_dims(order, [2]), shape), 1)


def any_of(x: Value) -> Value:
    """True (0-d) if any element of a bool value is True."""
    return hlo.reduce_or(x, range(x.rank))


def triangular(
    a: Value,
    b: Value,
    *,
    lower: bool,
    unit: bool = False,
    left: bool = True,
    transpose: Literal["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"] = "NO_TRANSPOSE",
) -> Value:
    """Solve ``op(a) x = b`` (``left``) or ``x op(a) = b`` for ``x``; read only one triangle of ``a``."""
    if is_empty(b.shape):
        return b
    return hlo.triangular_solve(a, b, left=left, lower=lower, unit=unit, transpose=transpose)
