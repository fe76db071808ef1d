"""Cholesky factors and triangular systems, for which StableHLO has operators.

Where eager raises (a matrix that is not positive definite), a program returns
NaN. Not here: factorizations that are loops (``linalg_factor``), eigenvalues,
singular values and functions of matrices (``linalg_spectral``). Products are in
``matmul``. ``linalg_cross``, norms and ranks need no lowering because PyTorch
decomposes them.
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import COMPLEX, FLOAT32, FLOAT64, INT32
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..composites import composed
from ..linear_algebra import matrices
from ..linear_algebra.failures import CHOLESKY, CHOLESKY_INVERSE, succeeds
from ..linear_algebra.matrices import adjoint, index, product, transposed
from ..registry import Spec, lowers

aten = namespace("aten")

DTYPES = frozenset({FLOAT32, FLOAT64}) | COMPLEX
"""The dtypes for which LAPACK has routines."""


# Cholesky ----------------------------------------------------------------------------


def _cholesky(a: Value, *, upper: bool) -> tuple[Value, Value]:
    """Return ``(factor, info)`` of ``[batch, n, n]``; read one triangle and the diagonal's real part."""
    if is_empty(a.shape):
        return a, hlo.full((a.shape[0],), 0, INT32)
    low = matrices.lower(adjoint(a) if upper else a)
    real = hlo.eq(matrices.row_of(low), matrices.column_of(low))
    low = hlo.select(real, hlo.convert(hlo.real(low), low.dtype), low)
    factor = matrices.lower(hlo.cholesky(low + adjoint(matrices.lower(low, 1))))
    failed = hlo.is_nan(hlo.real(matrices.diagonal(factor)))
    bad = hlo.reduce_or(failed, [1])

    def search() -> list[Value]:
        return [_first_bad_minor(low)]

    none = hlo.full((a.shape[0],), 0, INT32)
    (info,) = hlo.if_(matrices.any_of(bad), search, lambda: [none], [(none.shape, INT32)])
    wrong = hlo.broadcast_in_dim(hlo.ne(info, 0), factor.shape, [0])
    factor = matrices.lower(hlo.select(wrong, hlo.full_like(factor, float("nan")), factor))
    return adjoint(factor) if upper else factor, info


def _first_bad_minor(low: Value) -> Value:
    """Return LAPACK's ``info``: the order of the first leading minor that is not positive definite, or 0."""
    batch, n, _ = low.shape
    rows, columns = matrices.row_of(low), matrices.column_of(low)

    def step(k: Value, rest: Value, info: Value) -> list[Value]:
        pivot = hlo.real(matrices.element(rest, k, k))
        good = pivot > 0.0
        first = hlo.eq(info, 0) & ~hlo.reshape(good, info.shape)
        root = hlo.convert(hlo.sqrt(hlo.select(good, pivot, hlo.full_like(pivot, 1))), rest.dtype)
        column = matrices.column(rest, k) / matrices.spread(root, (batch, n, 1))
        below = (rows > hlo.broadcast_to(k, rows.shape)) & (columns > hlo.broadcast_to(k, rows.shape))
        rest = hlo.select(below, rest - product(column, adjoint(column)), rest)
        return [rest, hlo.select(first, hlo.broadcast_to(k + 1, info.shape), info)]

    return hlo.fori(index(n), step, [low, hlo.full((batch,), 0, INT32)])[1]


@lowers(
    aten.linalg_cholesky_ex.default,
    dtypes=DTYPES,
    ignores=("check_errors",),
    values=[succeeds("linalg.cholesky_ex")],
)
def linalg_cholesky_ex(self: Value, *, upper: bool = False, out: tuple[Spec, Spec]) -> Any:
    """Cholesky factor and LAPACK's info; NaN where the matrix is not positive definite."""

    def kernel(a: Value) -> tuple[Value, Value]:
        return _cholesky(matrices.batched(a), upper=upper)

    return composed("linalg_cholesky", [self], kernel, out, {"upper": upper})


@lowers(aten.cholesky.default, dtypes=DTYPES, values=[CHOLESKY])
def cholesky(self: Value, upper: bool = False, *, out: Spec) -> Any:
    """Cholesky factor; NaN where the matrix is not positive definite."""
    info = Spec(out.shape[:-2], INT32)
    return linalg_cholesky_ex(self, upper=upper, out=(out, info))[0]


def _solved_by_cholesky(factor: Value, b: Value, *, upper: bool) -> Value:
    """Solve ``A x = b`` for ``x``, where A = L Lᴴ (or Uᴴ U)."""
    first = matrices.triangular(factor, b, lower=not upper, transpose="ADJOINT" if upper else "NO_TRANSPOSE")
    return matrices.triangular(
        factor, first, lower=not upper, transpose="NO_TRANSPOSE" if upper else "ADJOINT"
    )


@lowers(aten.cholesky_inverse.default, dtypes=DTYPES, values=[CHOLESKY_INVERSE])
def cholesky_inverse(self: Value, upper: bool = False, *, out: Spec) -> Any:
    """Inverse of the matrix with the given Cholesky factor."""

    def kernel(factor: Value) -> Value:
        factor = matrices.batched(factor)
        return _solved_by_cholesky(factor, matrices.identity(factor.shape, factor.dtype), upper=upper)

    return composed("linalg_cholesky_inverse", [self], kernel, out, {"upper": upper})


@lowers(aten.cholesky_solve.default, dtypes=DTYPES)
def cholesky_solve(self: Value, input2: Value, upper: bool = False, *, out: Spec) -> Any:
    """Solve ``A x = self`` for ``x``, where ``input2`` is A's Cholesky factor."""

    def kernel(b: Value, factor: Value) -> Value:
        b, factor = (matrices.broadcast_batch(x, out.shape[:-2]) for x in (b, factor))
        return _solved_by_cholesky(factor, b, upper=upper)

    return composed("linalg_cholesky_solve", [self, input2], kernel, out, {"upper": upper})


# Triangular systems ------------------------------------------------------------------


@lowers(aten.linalg_solve_triangular.default, dtypes=DTYPES)
def linalg_solve_triangular(
    self: Value, B: Value, *, upper: bool, left: bool = True, unitriangular: bool = False, out: Spec
) -> Value:
    """Solve ``self x = B`` or, if not ``left``, ``x self = B`` for ``x``, in the dtype of ``self``."""
    a, b = (matrices.broadcast_batch(x, out.shape[:-2]) for x in (self, hlo.convert(B, self.dtype)))
    solved = matrices.triangular(a, b, lower=not upper, unit=unitriangular, left=left)
    return hlo.reshape(solved, out.shape)


@lowers(aten.triangular_solve.default, dtypes=DTYPES)
def triangular_solve(
    self: Value,
    A: Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: tuple[Spec, Spec],
) -> tuple[Value, Value]:
    """Solve ``A x = self`` (or ``Aᵀ x = self``) for ``x``; also returns A, broadcast to match."""
    a, b = (matrices.broadcast_batch(x, out[0].shape[:-2]) for x in (A, self))
    lower = upper if transpose else not upper
    solved = matrices.triangular(transposed(a) if transpose else a, b, lower=lower, unit=unitriangular)
    return hlo.reshape(solved, out[0].shape), hlo.reshape(a, out[1].shape)
