"""Jacobi's methods for Hermitian eigenproblems and singular values, with all pairs rotated at once.

In each round every column meets one other (a round-robin tournament, Brent and
Luk 1985), so half as many rotations as columns are applied together. A sweep is
one tournament. Columns are stored as two halves, the upper and lower partners, so
that a round needs no gathers. An odd number of columns gets an extra zero column,
which rotations never change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import hlo
from ...hlo import Value
from . import householder, matrices
from .matrices import epsilon, index, smallest

_MOST_SWEEPS = 20
"""The maximum number of sweeps. Convergence is quadratic: six to ten are usual."""

Pair = tuple[Value, Value]


def _halves(x: Value, axis: int) -> Pair:
    half = x.shape[axis] // 2
    return hlo.slice_axis(x, axis, 0, half), hlo.slice_axis(x, axis, half, 2 * half)


def _next_round(top: Value, bottom: Value, axis: int) -> Pair:
    """Return the partners of the next round: the first stays, the others move one seat around the table."""
    half = top.shape[axis]
    if half == 1:
        return top, bottom
    first = hlo.slice_axis(top, axis, 0, 1)
    new_top = [first, hlo.slice_axis(bottom, axis, 0, 1), hlo.slice_axis(top, axis, 1, half - 1)]
    new_bottom = [hlo.slice_axis(bottom, axis, 1, half), hlo.slice_axis(top, axis, half - 1, half)]
    return hlo.concatenate(new_top, axis), hlo.concatenate(new_bottom, axis)


def _even(x: Value, axes: Sequence[int]) -> Value:
    for axis in axes:
        if x.shape[axis] % 2:
            x = hlo.pad_axis(x, 0, axis, 0, 1)
    return x


def _rotation(a: Value, b: Value, c: Value) -> tuple[Value, Value, Value, Value]:
    """Return the rotation that makes [[a, c], [c̄, b]] diagonal: ``(cos, sin, tan, phase of c)``.

    ``a`` and ``b`` are real. The phase has the dtype of ``c``; the other results are real.
    """
    size = hlo.abs_(c)
    small = size <= smallest(c.dtype)
    divisor = hlo.select(small, hlo.full_like(size, 1), size)
    tau = (b - a) / (divisor * 2.0)
    tangent = 1.0 / (hlo.abs_(tau) + hlo.sqrt(1.0 + tau * tau))
    tangent = hlo.select(tau < 0.0, -tangent, tangent)
    tangent = hlo.select(small, hlo.zeros_like(tangent), tangent)
    cosine = hlo.rsqrt(1.0 + tangent * tangent)
    phase = c / hlo.convert(divisor, c.dtype)
    phase = hlo.select(small, hlo.full_like(phase, 1), phase)
    return cosine, tangent * cosine, tangent, phase


def _rotated(top: Value, bottom: Value, cosine: Value, sine: Value) -> Pair:
    """Return ``(top · cos - bottom · sin, top · sin + bottom · cos)``; the angles are already broadcast."""
    return top * cosine - bottom * sine, top * sine + bottom * cosine


# Hermitian eigenproblems -------------------------------------------------------------


def eigh(a: Value, *, vectors: bool) -> tuple[Value, Value | None]:
    """Ascending eigenvalues ``[batch, n]`` and, if requested, eigenvectors of Hermitian ``[batch, n, n]``."""
    batch, n, _ = a.shape
    if n > 1:
        values, v = _diagonalized(a, vectors=vectors)
    else:
        values, v = hlo.reshape(hlo.real(a), (batch, n)), hlo.full_like(a, 1)
    position = hlo.iota(values.shape, 1, index(0).dtype)
    values, order = hlo.sort([values, position], 1, lambda x, y, *_: x < y, stable=True)
    return values, matrices.taken_columns(v, order) if vectors else None


def _diagonalized(a: Value, *, vectors: bool) -> tuple[Value, Value]:
    batch, n, _ = a.shape
    tops, bottoms = _halves(_even(a, (1, 2)), 1)
    quadrants = [*_halves(tops, 2), *_halves(bottoms, 2)]
    even = n + n % 2
    v_top, v_bottom = _halves(matrices.identity((batch, n, even), a.dtype), 2)
    tolerance = epsilon(a.dtype) ** 2

    def unfinished(sweep: Value, *state: Value) -> Value:
        off, total = _off_diagonal(state[:4])
        return (sweep < _MOST_SWEEPS) & matrices.any_of(off > total * tolerance)

    def body(sweep: Value, *state: Value) -> list[Value]:
        rounds = hlo.fori(index(even - 1), lambda _, *s: _eigen_round(s, vectors=vectors), list(state))
        return [sweep + 1, *rounds]

    _, tl, _, _, br, v_top, v_bottom = hlo.while_(unfinished, body, [index(0), *quadrants, v_top, v_bottom])
    values = hlo.concatenate([hlo.real(matrices.diagonal(tl)), hlo.real(matrices.diagonal(br))], 1)
    v = hlo.concatenate([v_top, v_bottom], 2)
    return hlo.slice_axis(values, 1, 0, n), hlo.slice_axis(v, 2, 0, n)


def _off_diagonal(quadrants: Sequence[Value]) -> Pair:
    """Return the squared Frobenius norms ``[batch]`` of the off-diagonal elements, and of all elements."""
    tl, tr, bl, br = (matrices.squared_size(q) for q in quadrants)
    apart = hlo.ne(matrices.row_of(tl), matrices.column_of(tl))
    zeros = hlo.zeros_like(tl)
    off = hlo.select(apart, tl, zeros) + tr + bl + hlo.select(apart, br, zeros)
    return hlo.reduce_sum(off, [1, 2]), hlo.reduce_sum(tl + tr + bl + br, [1, 2])


def _eigen_round(state: Sequence[Value], *, vectors: bool) -> list[Value]:
    tl, tr, bl, br, v_top, v_bottom = state
    a, b, c = hlo.real(matrices.diagonal(tl)), hlo.real(matrices.diagonal(br)), matrices.diagonal(tr)
    cosine, sine, tangent, phase = _rotation(a, b, c)
    # Move the phase of c to the lower partner, so that the rotation is real.
    columns = [hlo.convert(cosine, c.dtype), hlo.convert(sine, c.dtype), hlo.conj(phase)]
    by_column = [hlo.broadcast_in_dim(x, tl.shape, [0, 2]) for x in columns]
    by_row = [hlo.conj(hlo.broadcast_in_dim(x, tl.shape, [0, 1])) for x in columns]
    tl, tr = _rotated(tl, tr * by_column[2], by_column[0], by_column[1])
    bl, br = _rotated(bl, br * by_column[2], by_column[0], by_column[1])
    tl, bl = _rotated(tl, bl * by_row[2], by_row[0], by_row[1])
    tr, br = _rotated(tr, br * by_row[2], by_row[0], by_row[1])
    change = tangent * hlo.abs_(c)
    tl, br = _with_diagonal(tl, a - change), _with_diagonal(br, b + change)
    tr, bl = _with_diagonal(tr, hlo.zeros_like(a)), _with_diagonal(bl, hlo.zeros_like(a))
    if vectors:
        factors = [hlo.broadcast_in_dim(x, v_top.shape, [0, 2]) for x in columns]
        v_top, v_bottom = _rotated(v_top, v_bottom * factors[2], factors[0], factors[1])
        v_top, v_bottom = _next_round(v_top, v_bottom, 2)
    tl, tr = _next_round(tl, tr, 2)
    bl, br = _next_round(bl, br, 2)
    tl, bl = _next_round(tl, bl, 1)
    tr, br = _next_round(tr, br, 1)
    return [tl, tr, bl, br, v_top, v_bottom]


def _with_diagonal(x: Value, values: Value) -> Value:
    wide = hlo.broadcast_in_dim(hlo.convert(values, x.dtype), x.shape, [0, 2])
    return hlo.select(hlo.eq(matrices.row_of(x), matrices.column_of(x)), wide, x)


# Singular values -----------------------------------------------------------------------


def svd(a: Value) -> tuple[Value, Value, Value]:
    """``(U, S, V)`` of square ``[batch, n, n]``: ``U diag(S) Vᴴ``, S descending."""
    batch, n, _ = a.shape
    v = matrices.identity((batch, n, n), a.dtype)
    if n > 1:
        a, v = _orthogonalized(a, v)
    sizes = _column_norms(a)
    position = hlo.iota(sizes.shape, 1, index(0).dtype)
    sizes, order = hlo.sort([sizes, position], 1, lambda x, y, *_: x > y, stable=True)
    return _directions(matrices.taken_columns(a, order), sizes), sizes, matrices.taken_columns(v, order)


def _directions(a: Value, sizes: Value) -> Value:
    """Return orthonormal columns along those of ``a``, whose lengths are ``sizes``; arbitrary for zero."""
    there = sizes > 0.0
    unit = matrices.scaled_columns(a, 1.0 / hlo.select(there, sizes, hlo.full_like(sizes, 1)))
    factors, tau = householder.factor(unit)
    q = householder.apply(factors, tau, matrices.identity(a.shape, a.dtype))
    signs = hlo.select(there & (hlo.real(matrices.diagonal(factors)) < 0.0), hlo.full_like(sizes, -1), 1)
    return matrices.scaled_columns(q, signs)


def _column_norms(a: Value) -> Value:
    largest = hlo.reduce_max(hlo.abs_(a), [1])
    scale = hlo.select(largest > 0.0, largest, hlo.full_like(largest, 1))
    shrunk = hlo.abs_(a) / hlo.broadcast_in_dim(scale, a.shape, [0, 2])
    return scale * hlo.sqrt(hlo.reduce_sum(shrunk * shrunk, [1]))


def _orthogonalized(a: Value, v: Value) -> Pair:
    """Apply one-sided rotations (Hestenes 1958) to the columns of ``a``, and the same ones to ``v``."""
    _, m, n = a.shape
    even = n + n % 2
    state = [*_halves(_even(a, (2,)), 2), *_halves(_even(v, (2,)), 2)]
    tolerance = epsilon(a.dtype) * max(4.0, math.sqrt(m))
    initial = hlo.full((a.shape[0],), 1, a.dtype.real)

    def unfinished(sweep: Value, worst: Value, *_: Value) -> Value:
        return (sweep < _MOST_SWEEPS) & matrices.any_of(worst > tolerance)

    def body(sweep: Value, _: Value, *state: Value) -> list[Value]:
        clean = hlo.zeros_like(initial)
        return [sweep + 1, *hlo.fori(index(even - 1), lambda _, *s: _svd_round(*s), [clean, *state])]

    _, _, *state = hlo.while_(unfinished, body, [index(0), initial, *state])
    halves = [hlo.concatenate(state[:2], 2), hlo.concatenate(state[2:], 2)]
    return hlo.slice_axis(halves[0], 2, 0, n), hlo.slice_axis(halves[1], 2, 0, n)


def _svd_round(worst: Value, a_top: Value, a_bottom: Value, v_top: Value, v_bottom: Value) -> list[Value]:
    a, b = (hlo.reduce_sum(matrices.squared_size(x), [1]) for x in (a_top, a_bottom))
    c = hlo.reduce_sum(hlo.conj(a_top) * a_bottom, [1])
    size = hlo.sqrt(a) * hlo.sqrt(b)
    cosine = hlo.abs_(c) / hlo.select(size > 0.0, size, hlo.full_like(size, 1))
    worst = hlo.maximum(worst, hlo.reduce_max(cosine, [1]))
    rotation = _rotation(a, b, c)
    angles = [hlo.convert(x, c.dtype) for x in rotation[:2]]
    turn = hlo.conj(rotation[3])
    pairs: list[Value] = []
    for top, bottom in ((a_top, a_bottom), (v_top, v_bottom)):
        factors = [hlo.broadcast_in_dim(x, top.shape, [0, 2]) for x in (*angles, turn)]
        rotated = _rotated(top, bottom * factors[2], factors[0], factors[1])
        pairs += _next_round(*rotated, 2)
    return [worst, *pairs]
