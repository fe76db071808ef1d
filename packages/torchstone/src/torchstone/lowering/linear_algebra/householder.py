"""Householder reflections: QR factorization, and products with its orthogonal factor.

A factorization has the layout of LAPACK's ``geqrf``: R on and above the diagonal,
and below it the vectors vₖ without their leading 1. The factors τₖ of the
reflections Hₖ = I - τₖ vₖ vₖᴴ, whose product is Q, are separate.
"""

from __future__ import annotations

from ... import hlo
from ...hlo import Value
from ..common import is_empty
from . import matrices
from .matrices import adjoint, index, product, spread


def reflector(x: Value, first: Value, rows: Value) -> tuple[Value, Value, Value]:
    """Return ``(v, tau, beta)`` that map the rows of ``x`` from ``first`` on to β e₁ (LAPACK's ``larfg``).

    ``x``, ``rows`` (the row numbers) and ``v`` are ``[batch, rows, 1]``; ``first`` is 0-d;
    ``tau`` and the real ``beta`` are ``[batch, 1, 1]``. The leading element of ``v`` is 1.
    """
    here = hlo.broadcast_to(first, rows.shape)
    alpha = matrices.element(x, first, index(0))
    tail = hlo.select(rows > here, x, hlo.zeros_like(x))
    size = _norm(hlo.select(rows >= here, x, hlo.zeros_like(x)))
    leading = hlo.real(alpha)
    beta = hlo.select(leading < 0.0, size, -size)
    trivial = hlo.eq(_norm(tail), 0.0) & hlo.eq(hlo.imag(alpha), 0.0)
    beta = hlo.select(trivial, leading, beta)
    divisor = hlo.select(trivial, hlo.full_like(beta, 1), beta)
    tau = (hlo.convert(beta, x.dtype) - alpha) / hlo.convert(divisor, x.dtype)
    scale = alpha - hlo.convert(beta, x.dtype)
    scale = hlo.select(trivial, hlo.full_like(scale, 1), scale)
    v = tail / spread(scale, x.shape)
    return hlo.select(hlo.eq(rows, here), hlo.full_like(v, 1), v), tau, beta


def _norm(x: Value) -> Value:
    """Euclidean norm of ``[batch, rows, 1]`` as ``[batch, 1, 1]``, scaled so that no square overflows."""
    largest = hlo.expand_dims(hlo.reduce_max(hlo.abs_(x), [1]), [1])
    scale = hlo.select(largest > 0.0, largest, hlo.full_like(largest, 1))
    shrunk = hlo.abs_(x) / spread(scale, x.shape)
    return scale * hlo.sqrt(hlo.expand_dims(hlo.reduce_sum(shrunk * shrunk, [1]), [1]))


def reflect(a: Value, v: Value, tau: Value) -> Value:
    """``(I - τ v vᴴ) a``."""
    return a - product(v * spread(tau, v.shape), product(adjoint(v), a))


def factor(a: Value) -> tuple[Value, Value]:
    """``(factors, tau)`` of ``[batch, m, n]``: ``[batch, m, n]`` and ``[batch, min(m, n)]``."""
    batch, m, n = a.shape
    tau = hlo.full((batch, min(m, n)), 0, a.dtype)
    if is_empty(a.shape):
        return a, tau
    rows = matrices.row_of(hlo.slice_axis(a, 2, 0, 1))
    columns = matrices.column_of(a)

    def step(k: Value, a: Value, tau: Value) -> list[Value]:
        x = matrices.column(a, k)
        v, factor, beta = reflector(x, k, rows)
        updated = reflect(a, v, hlo.conj(factor))
        here = hlo.broadcast_to(k, rows.shape)
        kept = hlo.select(rows > here, v, x)
        kept = hlo.select(hlo.eq(rows, here), spread(hlo.convert(beta, a.dtype), x.shape), kept)
        a = hlo.select(columns > hlo.broadcast_to(k, a.shape), updated, a)
        tau = hlo.dynamic_update_slice(tau, hlo.reshape(factor, (batch, 1)), [index(0), k])
        return [matrices.put_column(a, kept, k), tau]

    factors, tau = hlo.fori(index(min(m, n)), step, [a, tau])
    return factors, tau


def apply(factors: Value, tau: Value, other: Value, *, adjoint: bool = False) -> Value:
    """``Q other`` or ``Qᴴ other``."""
    batch, m, _ = factors.shape
    count = tau.shape[1]
    if is_empty(other.shape) or is_empty(tau.shape):
        return other
    rows = hlo.iota((batch, m, 1), 1, index(0).dtype)

    def step(i: Value, other: Value) -> list[Value]:
        k = i if adjoint else count - 1 - i
        here = hlo.broadcast_to(k, rows.shape)
        x = matrices.column(factors, k)
        v = hlo.select(rows > here, x, hlo.zeros_like(x))
        v = hlo.select(hlo.eq(rows, here), hlo.full_like(v, 1), v)
        factor = hlo.expand_dims(hlo.dynamic_slice(tau, [index(0), k], [batch, 1]), [1])
        return [reflect(other, v, hlo.conj(factor) if adjoint else factor)]

    return hlo.fori(index(count), step, [other])[0]


def qr(a: Value, columns: int) -> tuple[Value, Value]:
    """``(Q, R)`` with the first ``columns`` columns of Q."""
    batch, m, n = a.shape
    factors, tau = factor(a)
    q = apply(factors, tau, matrices.identity((batch, m, columns), a.dtype))
    if columns <= m:
        r = matrices.upper(hlo.slice_(factors, [0, 0, 0], [batch, min(columns, m), n]))
    return q, r
