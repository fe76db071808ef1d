"""LU factorization with partial pivoting, and solving with its factors."""

from __future__ import annotations

from ... import hlo
from ...dtypes import INT32
from ...hlo import Value
from ..common import is_empty
from . import matrices
from .matrices import index, spread, triangular


def factor(a: Value, *, pivot: bool = True) -> tuple[Value, Value, Value]:
    """``(lu, pivots, info)``: ``[batch, m, n]``, ``[batch, k]``, ``[batch]``, as in LAPACK's ``getrf``.

    ``pivots`` count from 1 and give the row that each row was swapped with. ``info`` is
    the first column (from 1) whose pivot is zero, or 0.
    """
    batch, m, n = a.shape
    steps = min(m, n)
    pivots = hlo.iota((batch, steps), 1, INT32) + 1
    info = hlo.full((batch,), 0, INT32)
    if is_empty(a.shape):
        return a, pivots, info
    rows, columns = matrices.row_of(a), matrices.column_of(a)

    def step(k: Value, a: Value, pivots: Value, info: Value) -> list[Value]:
        here = hlo.broadcast_to(k, a.shape)
        chosen = _pivot_row(matrices.column(a, k), k) if pivot else hlo.broadcast_to(k, (batch,))
        swapped = hlo.broadcast_in_dim(chosen, a.shape, [0])
        upper_row = spread(matrices.row(a, k), a.shape)
        pivot_row = spread(matrices.taken_rows(a, hlo.expand_dims(chosen, [1])), a.shape)
        a = hlo.select(hlo.eq(rows, swapped), upper_row, a)
        a = hlo.select(hlo.eq(rows, here), pivot_row, a)
        value = matrices.element(a, k, k)
        singular = hlo.eq(value, 0.0)
        below = hlo.select(rows > here, spread(matrices.column(a, k), a.shape), hlo.zeros_like(a))
        divisor = hlo.select(singular, hlo.full_like(value, 1), value)
        multipliers = below / spread(divisor, a.shape)
        a = hlo.select(
            columns > here,
            a - multipliers * pivot_row,
            hlo.select(hlo.eq(columns, here) & (rows > here), multipliers, a),
        )
        pivots = hlo.dynamic_update_slice(pivots, hlo.expand_dims(chosen + 1, [1]), [index(0), k])
        first = hlo.eq(info, 0) & hlo.reshape(singular, info.shape)
        return [a, pivots, hlo.select(first, hlo.broadcast_to(k + 1, info.shape), info)]

    lu, pivots, info = hlo.fori(index(steps), step, [a, pivots, info])
    return lu, pivots, info


def _pivot_row(column: Value, k: Value) -> Value:
    """Return the first row from ``k`` on with the largest element of ``[batch, rows, 1]``.

    Complex elements count by |re| + |im|, as in LAPACK.
    """
    size = hlo.abs_(hlo.real(column))
    if column.dtype.is_complex:
        size = size + hlo.abs_(hlo.imag(column))
    rows = matrices.row_of(size)
    size = hlo.select(rows >= hlo.broadcast_to(k, rows.shape), size, hlo.full_like(size, -1))
    largest = spread(hlo.expand_dims(hlo.reduce_max(size, [1]), [1]), size.shape)
    best = hlo.select(hlo.eq(size, largest), rows, hlo.full_like(rows, 2**31 - 1))
    # If the largest is NaN, no element equals it, so no rows are swapped.
    found = hlo.reshape(hlo.reduce_min(best, [1]), (column.shape[0],))
    return hlo.select(found < column.shape[1], found, hlo.broadcast_to(k, found.shape))


def permutation(pivots: Value, size: int) -> Value:
    """Return the row order ``[batch, size]``: the swaps ``[batch, k]`` (from 1) applied to 0, 1, 2, …"""
    batch, count = pivots.shape
    order = hlo.iota((batch, size), 1, INT32)
    if is_empty(order.shape) or is_empty(pivots.shape):
        return order
    positions = order

    def step(k: Value, order: Value) -> list[Value]:
        other = hlo.dynamic_slice(pivots, [index(0), k], [batch, 1]) - 1
        mine = hlo.dynamic_slice(order, [index(0), k], [batch, 1])
        theirs = hlo.take_along(order, other, 1)
        there = hlo.eq(positions, hlo.broadcast_to(other, order.shape))
        order = hlo.select(there, hlo.broadcast_to(mine, order.shape), order)
        return [hlo.dynamic_update_slice(order, theirs, [index(0), k])]

    return hlo.fori(index(count), step, [order])[0]


def inverse_order(order: Value) -> Value:
    """The permutation that undoes ``order``."""
    return hlo.sort([order, hlo.iota(order.shape, 1, INT32)], 1, lambda a, b, *_: a < b, stable=True)[1]


def solve(lu: Value, order: Value, b: Value, *, adjoint: bool = False) -> Value:
    """Solve ``A x = b`` (or ``Aᴴ x = b``) for ``x``; ``lu`` and the row ``order`` come from A."""
    if is_empty(b.shape):
        return b
    if adjoint:
        y = triangular(lu, b, lower=False, unit=False, transpose="ADJOINT")
        y = triangular(lu, y, lower=True, unit=True, transpose="ADJOINT")
        return matrices.taken_rows(y, inverse_order(order))
    y = triangular(lu, matrices.taken_rows(b, order), lower=True, unit=True)
    return triangular(lu, y, lower=False, unit=False)
