"""Symmetric and Hermitian indefinite factorization with Bunch–Kaufman pivoting (LAPACK's ``sytf2``).

The matrices of a batch choose 1×1 and 2×2 pivots independently, so each matrix
has its own position in the one loop over pivots.
"""

from __future__ import annotations

import math

from ... import hlo
from ...dtypes import INT32
from ...hlo import Value
from . import matrices
from .matrices import index, product, squared_size, transposed

_ALPHA = (1 + math.sqrt(17)) / 8


def _mirror(x: Value, *, hermitian: bool) -> Value:
    """Transpose, conjugated for Hermitian matrices."""
    return transposed(hlo.conj(x) if hermitian else x)


def _at(x: Value, place: Value) -> Value:
    """Column ``place[b]`` of each matrix, ``[batch, n, 1]`` (the last column if out of range)."""
    return matrices.taken_columns(x, hlo.expand_dims(hlo.minimum(place, x.shape[2] - 1), [1]))


def _entry(x: Value, place: Value) -> Value:
    """Element ``place[b]`` of ``[batch, n, 1]`` as ``[batch, 1, 1]``."""
    return matrices.taken_rows(x, hlo.expand_dims(hlo.minimum(place, x.shape[1] - 1), [1]))


def _flat(x: Value) -> Value:
    """``[batch, 1, 1]`` as ``[batch]``."""
    return hlo.reshape(x, (x.shape[0],))


def _wide(x: Value, like: Value) -> Value:
    """``[batch]`` repeated over ``[batch, …]``."""
    return hlo.broadcast_in_dim(x, like.shape, [0])


def _size(x: Value) -> Value:
    """Return |re| + |im|, the size by which LAPACK compares pivots."""
    return hlo.abs_(hlo.real(x)) + hlo.abs_(hlo.imag(x)) if x.dtype.is_complex else hlo.abs_(x)


def _peak(size: Value, allowed: Value) -> tuple[Value, Value]:
    """Return the largest allowed element of ``[batch, n, 1]`` and its first row, both ``[batch]``."""
    masked = hlo.select(allowed, size, hlo.full_like(size, -1))
    largest = hlo.reduce_max(masked, [1, 2])
    rows = matrices.row_of(masked)
    at = hlo.select(hlo.eq(masked, _wide(largest, masked)), rows, hlo.full_like(rows, size.shape[1] - 1))
    return hlo.maximum(largest, 0.0), hlo.reduce_min(at, [1, 2])


def _exchanged(rows: Value, one: Value, other: Value) -> Value:
    """Swap the row numbers ``one[b]`` and ``other[b]`` in ``rows``, ``[batch, n]``."""
    one, other = _wide(one, rows), _wide(other, rows)
    return hlo.select(hlo.eq(rows, one), other, hlo.select(hlo.eq(rows, other), one, rows))


def factor(a: Value, *, hermitian: bool) -> tuple[Value, Value, Value]:
    """``(LD, pivots, info)``: ``[batch, n, n]``, ``[batch, n]``, ``[batch]``, as in LAPACK's ``sytrf``.

    D's blocks are on the diagonal and L's columns below them. A positive pivot
    (from 1) is the row swapped with a 1×1 block, two equal negative ones belong to a
    2×2 block. ``info`` is the first column (from 1) of zeros, or 0.
    """
    batch, n, _ = a.shape
    low = matrices.lower(a)
    below = matrices.lower(a, 1)
    full = low + _mirror(below, hermitian=hermitian)
    if hermitian:
        on_diagonal = hlo.eq(matrices.row_of(full), matrices.column_of(full))
        full = hlo.select(on_diagonal, hlo.convert(hlo.real(full), full.dtype), full)
    numbers = hlo.iota((batch, n), 1, INT32)
    none = hlo.full((batch,), 0, INT32)

    def unfinished(k: Value, *_: Value) -> Value:
        return matrices.any_of(k < n)

    def step(k: Value, s: Value, ld: Value, pivots: Value, info: Value) -> list[Value]:
        swapped, double, zero = _choose(s, k)
        last = hlo.select(double, k + 1, k)
        order = _exchanged(numbers, last, swapped)
        s = matrices.taken_rows(matrices.taken_columns(s, order), order)
        s, first, second = _eliminated(s, k, double, zero, hermitian=hermitian)
        columns = matrices.column_of(ld)
        ld = hlo.select(hlo.eq(columns, _wide(k, ld)), hlo.broadcast_to(first, ld.shape), ld)
        beside = hlo.eq(columns, _wide(k + 1, ld)) & _wide(double, ld)
        ld = hlo.select(beside, hlo.broadcast_to(second, ld.shape), ld)
        mark = hlo.select(double, -(swapped + 1), swapped + 1)
        covered = (numbers >= _wide(k, numbers)) & (numbers <= _wide(last, numbers))
        pivots = hlo.select(covered, _wide(mark, numbers), pivots)
        info = hlo.select(zero & hlo.eq(info, 0) & (k < n), k + 1, info)
        return [last + 1, s, ld, pivots, info]

    state = [none, full, hlo.zeros_like(a), hlo.zeros_like(numbers), none]
    _, _, ld, pivots, info = hlo.while_(unfinished, step, state)
    return matrices.lower(ld), pivots, info


def _choose(s: Value, k: Value) -> tuple[Value, Value, Value]:
    """Return ``(row to swap with, whether the pivot is 2×2, whether the column is zero)`` of each matrix."""
    column = _size(_at(s, k))
    rows = matrices.row_of(column)
    here = _flat(_entry(column, k))
    largest, at = _peak(column, rows > _wide(k, rows))
    across = _size(_at(s, at))
    in_row, _ = _peak(across, (rows >= _wide(k, rows)) & hlo.ne(rows, _wide(at, rows)))
    zero = hlo.eq(hlo.maximum(here, largest), 0.0)
    divisor = hlo.select(in_row > 0.0, in_row, hlo.full_like(in_row, 1))
    stay = zero | (here >= largest * _ALPHA) | (here >= largest * _ALPHA * (largest / divisor))
    single = stay | (_flat(_entry(across, at)) >= in_row * _ALPHA)
    return hlo.select(stay, k, at), ~single, zero


def _eliminated(
    s: Value, k: Value, double: Value, zero: Value, *, hermitian: bool
) -> tuple[Value, Value, Value]:
    """Eliminate the pivot at ``k``: return the rest of ``s``, and the one or two columns of L and D."""
    one, two = _at(s, k), _at(s, k + 1)
    rows = matrices.row_of(one)
    after = rows > _wide(hlo.select(double, k + 1, k), rows)
    nothing = hlo.zeros_like(one)
    tail_one, tail_two = hlo.select(after, one, nothing), hlo.select(after, two, nothing)
    a, b, c = _entry(one, k), _entry(one, k + 1), _entry(two, k + 1)
    corner = hlo.conj(b) if hermitian else b
    unit = hlo.full_like(a, 1)
    single = tail_one / _wide(_flat(hlo.select(hlo.reshape(zero, a.shape), unit, a)), one)
    # Divide [[a, corner], [b, c]] by its off-diagonal element, which is the largest.
    scale = hlo.select(hlo.reshape(double, b.shape), b, unit)
    corner_scale = hlo.select(hlo.reshape(double, b.shape), corner, unit)
    ratio = (a / scale) * (c / corner_scale) - 1.0
    ratio = hlo.select(hlo.reshape(double, b.shape), ratio, unit)
    left = (tail_one * _wide(_flat(c / scale), one) - tail_two) / _wide(_flat(corner_scale * ratio), one)
    right = (tail_two * _wide(_flat(a / corner_scale), one) - tail_one) / _wide(_flat(scale * ratio), one)
    pair = _wide(double, one)
    first, second = hlo.select(pair, left, single), hlo.select(pair, right, nothing)
    change = product(first, _mirror(tail_one, hermitian=hermitian))
    change = change + product(second, _mirror(tail_two, hermitian=hermitian))
    head_one = hlo.select(hlo.eq(rows, _wide(k, rows)), one, nothing)
    head_pair = hlo.select(hlo.eq(rows, _wide(k, rows)) | hlo.eq(rows, _wide(k + 1, rows)), one, nothing)
    head_two = hlo.select(hlo.eq(rows, _wide(k + 1, rows)), two, nothing)
    return (
        s - change,
        first + hlo.select(pair, head_pair, head_one),
        second + hlo.select(pair, head_two, nothing),
    )


def solve(ld: Value, pivots: Value, b: Value, *, hermitian: bool) -> Value:
    """Solve ``A x = b`` for ``x``; ``ld`` and ``pivots`` are A's factorization (LAPACK's ``sytrs``)."""
    batch, n, _ = ld.shape
    numbers = hlo.iota((batch, n), 1, INT32)
    negative = hlo.convert(pivots < 0, INT32)
    (count,) = hlo.associative_scan([negative], 1, lambda x, y: x + y)
    first = (pivots < 0) & hlo.eq(count & 1, 1)
    second = (pivots < 0) & ~first
    target = hlo.select(pivots < 0, -pivots, pivots) - 1

    def pick(x: Value, j: Value) -> Value:
        return hlo.reshape(hlo.dynamic_slice(x, [index(0), j], [batch, 1]), (batch,))

    def column(j: Value) -> Value:
        """L's column: the part below the block."""
        x = matrices.column(ld, j)
        rows = matrices.row_of(x)
        end = hlo.select(pick(first, j), hlo.broadcast_to(j + 1, (batch,)), hlo.broadcast_to(j, (batch,)))
        return hlo.select(rows > _wide(end, rows), x, hlo.zeros_like(x))

    def swapped(b: Value, j: Value) -> Value:
        own = hlo.broadcast_to(j, (batch,))
        here = hlo.select(pick(first, j), own + 1, own)
        order = _exchanged(numbers, here, hlo.select(pick(second, j), here, pick(target, j)))
        return matrices.taken_rows(b, order)

    def forward(j: Value, b: Value) -> list[Value]:
        b = swapped(b, j)
        return [b - product(column(j), matrices.row(b, j))]

    def backward(i: Value, b: Value) -> list[Value]:
        j = n - 1 - i
        update = product(_mirror(column(j), hermitian=hermitian), b)
        b = hlo.dynamic_update_slice(b, matrices.row(b, j) - update, [index(0), j, index(0)])
        return [swapped(b, j)]

    (b,) = hlo.fori(index(n), forward, [b])
    b = _divided(ld, b, first, second, hermitian=hermitian)
    return hlo.fori(index(n), backward, [b])[0]


def _divided(ld: Value, b: Value, first: Value, second: Value, *, hermitian: bool) -> Value:
    """``D⁻¹ b`` for the 1×1 and 2×2 blocks of D."""
    d = matrices.diagonal(ld)
    under = hlo.eq(matrices.row_of(ld) - matrices.column_of(ld), 1)
    e = hlo.reduce_sum(hlo.select(under, ld, hlo.zeros_like(ld)), [1])

    def neighbour(x: Value, step: int) -> Value:
        """Move row j + step to row j (zeros outside)."""
        size = x.shape[1]
        if step > 0:
            return hlo.pad_axis(hlo.slice_axis(x, 1, 1, size), 0, 1, 0, 1)
        return hlo.pad_axis(hlo.slice_axis(x, 1, 0, size - 1), 0, 1, 1, 0)

    paired = first | second
    off = hlo.select(first, e, neighbour(e, -1))
    other = hlo.select(first, neighbour(d, 1), neighbour(d, -1))
    square = hlo.convert(squared_size(off), off.dtype) if hermitian else off * off
    determinant = hlo.select(paired, d * other - square, d)
    cross = hlo.select(first, hlo.conj(off) if hermitian else off, off)

    def spread(x: Value) -> Value:
        return hlo.broadcast_in_dim(x, b.shape, [0, 1])

    partner = hlo.select(spread(first), neighbour(b, 1), neighbour(b, -1))
    double = b * spread(other) - partner * spread(cross)
    return hlo.select(spread(paired), double, b) / spread(determinant)
