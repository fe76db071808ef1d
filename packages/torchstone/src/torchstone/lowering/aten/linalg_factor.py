"""QR and LU factorizations and what they solve: systems, inverses, determinants.

The loops are in ``lowering.linear_algebra``. Each operator is a composite, so a
backend with routines of its own can use those. Where eager raises (a singular
matrix), a program returns infinities or NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ... import hlo
from ...dtypes import INT32
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..composites import composed
from ..linear_algebra import householder, ldl, lu, matrices
from ..linear_algebra.failures import SOLVE_PIVOTS, UNPACK_PIVOTS, succeeds
from ..linear_algebra.matrices import adjoint, transposed
from ..misfits import Arguments, other_shape
from ..registry import Spec, lowers
from .linalg import DTYPES

aten = namespace("aten")

Specs = tuple[Spec, ...]


# QR --------------------------------------------------------------------------------------


@lowers(aten.linalg_qr.default, dtypes=DTYPES)
def linalg_qr(A: Value, mode: str = "reduced", *, out: Specs) -> Any:
    """Q and R; Q is empty in mode ``r``."""

    def kernel(a: Value) -> tuple[Value, Value]:
        a = matrices.batched(a)
        batch, m, n = a.shape
        factors, tau = householder.factor(a)
        rows = m if mode == "complete" else min(m, n)
        r = matrices.upper(hlo.slice_axis(factors, 1, 0, rows))
        if mode == "r":
            return hlo.full(out[0].shape, 0, a.dtype), r
        return householder.apply(factors, tau, matrices.identity((batch, m, rows), a.dtype)), r

    return composed("linalg_qr", [A], kernel, out, {"mode": mode})


@lowers(aten.geqrf.default, dtypes=DTYPES)
def geqrf(self: Value, *, out: Specs) -> Any:
    """QR factorization in LAPACK's layout: R with the reflection vectors below it, and their factors."""
    return composed("linalg_geqrf", [self], lambda a: householder.factor(matrices.batched(a)), out)


def _reflected(factors: Value, tau: Value, other: Value, *, left: bool, transpose: bool) -> Value:
    """``other`` multiplied by Q (Qᴴ if ``transpose``) from the left or the right, all ``[batch, …]``."""
    if left:
        return householder.apply(factors, tau, other, adjoint=transpose)
    return adjoint(householder.apply(factors, tau, adjoint(other), adjoint=not transpose))


@lowers(aten.linalg_householder_product.default, dtypes=DTYPES)
def linalg_householder_product(input: Value, tau: Value, *, out: Spec) -> Any:
    """The first columns of the product of Householder reflections."""

    def kernel(factors: Value, tau: Value) -> Value:
        factors = matrices.broadcast_batch(factors, out.shape[:-2])
        start = matrices.identity(factors.shape, factors.dtype)
        return householder.apply(factors, matrices.broadcast_batch(tau, out.shape[:-2], 1), start)

    return composed("linalg_householder_product", [input, tau], kernel, out)


@lowers(aten.ormqr.default, dtypes=DTYPES)
def ormqr(
    self: Value, input2: Value, input3: Value, left: bool = True, transpose: bool = False, *, out: Spec
) -> Any:
    """``input3`` multiplied by the Q of a ``geqrf`` factorization."""

    def kernel(factors: Value, tau: Value, other: Value) -> Value:
        lead = out.shape[:-2]
        factors, other = (matrices.broadcast_batch(x, lead) for x in (factors, other))
        tau = matrices.broadcast_batch(tau, lead, 1)
        return _reflected(factors, tau, other, left=left, transpose=transpose)

    attributes = {"left": left, "transpose": transpose}
    return composed("linalg_ormqr", [self, input2, input3], kernel, out, attributes)


# LU --------------------------------------------------------------------------------------


@lowers(
    aten.linalg_lu_factor_ex.default,
    dtypes=DTYPES,
    ignores=("check_errors",),
    values=[succeeds("torch.linalg.lu_factor_ex")],
)
def linalg_lu_factor_ex(A: Value, *, pivot: bool = True, out: Specs) -> Any:
    """L and U in one matrix, the row swaps (from 1), and the first zero pivot (from 1) or 0."""
    return composed(
        "linalg_lu_factor", [A], lambda a: lu.factor(matrices.batched(a), pivot=pivot), out, {"pivot": pivot}
    )


def _unpacked(factors: Value, pivots: Value, out: Specs, *, data: bool, swaps: bool) -> list[Value]:
    """Return P, L and U of ``[batch, m, n]`` factors; those that are not requested are empty."""
    batch, m, n = factors.shape
    k = min(m, n)
    result = [hlo.full(spec.shape, 0, factors.dtype) for spec in out]
    if swaps:
        order = lu.permutation(pivots, m)
        columns = hlo.iota((batch, m, m), 1, INT32)
        ones = hlo.eq(columns, hlo.broadcast_in_dim(order, columns.shape, [0, 2]))
        result[0] = hlo.convert(ones, factors.dtype)
    if data:
        result[1] = matrices.with_unit_diagonal(matrices.lower(hlo.slice_axis(factors, 2, 0, k), 1))
        result[2] = matrices.upper(hlo.slice_axis(factors, 1, 0, k))
    return result


@lowers(aten.linalg_lu.default, dtypes=DTYPES)
def linalg_lu(A: Value, *, pivot: bool = True, out: Specs) -> Any:
    """P, L and U with ``A = P L U``."""

    def kernel(a: Value) -> list[Value]:
        factors, pivots, _ = lu.factor(matrices.batched(a), pivot=pivot)
        return _unpacked(factors, pivots, out, data=True, swaps=pivot)

    return composed("linalg_lu", [A], kernel, out, {"pivot": pivot})


def _refuses_other_batch(given: Arguments) -> str | None:
    """Refuse pivots of a wrong shape: PyTorch's kernel reads those of each matrix without checking."""
    if not given.get("unpack_pivots", True):
        return None
    *lead, rows, columns = given["LU_data"].shape
    return other_shape("LU_pivots", given["LU_pivots"].shape, (*lead, torch.sym_min(rows, columns)))


@lowers(aten.lu_unpack.default, values=[UNPACK_PIVOTS], refuses=_refuses_other_batch)
def lu_unpack(
    LU_data: Value, LU_pivots: Value, unpack_data: bool = True, unpack_pivots: bool = True, *, out: Specs
) -> Any:
    """P, L and U of a packed factorization."""

    def kernel(factors: Value, pivots: Value) -> list[Value]:
        factors, pivots = matrices.batched(factors), matrices.batched(pivots, 1)
        return _unpacked(factors, pivots, out, data=unpack_data, swaps=unpack_pivots)

    attributes = {"unpack_data": unpack_data, "unpack_pivots": unpack_pivots}
    return composed("linalg_lu_unpack", [LU_data, LU_pivots], kernel, out, attributes)


# Solving ---------------------------------------------------------------------------------


def _solved(factors: Value, pivots: Value, b: Value, *, left: bool, adjoint_: bool) -> Value:
    """Solve ``A x = b`` (``x A = b`` if not ``left``), given the LU factors of A or (``adjoint_``) Aᴴ."""
    order = lu.permutation(pivots, factors.shape[1])
    if left:
        return lu.solve(factors, order, b, adjoint=adjoint_)
    return adjoint(lu.solve(factors, order, adjoint(b), adjoint=not adjoint_))


@lowers(aten.linalg_lu_solve.default, dtypes=DTYPES, values=[SOLVE_PIVOTS])
def linalg_lu_solve(
    LU: Value, pivots: Value, B: Value, *, left: bool = True, adjoint: bool = False, out: Spec
) -> Any:
    """Solve ``A x = B`` (``x A = B`` if not ``left``), given the LU factors of A, or of Aᴴ if ``adjoint``."""

    def kernel(factors: Value, swaps: Value, b: Value) -> Value:
        lead = out.shape[:-2]
        factors, b = (matrices.broadcast_batch(x, lead) for x in (factors, b))
        return _solved(factors, matrices.broadcast_batch(swaps, lead, 1), b, left=left, adjoint_=adjoint)

    return composed("linalg_lu_solve", [LU, pivots, B], kernel, out, {"left": left, "adjoint": adjoint})


@lowers(
    aten._linalg_solve_ex.default,
    dtypes=DTYPES,
    ignores=("check_errors",),
    values=[succeeds("torch.linalg.solve_ex")],
)
def _linalg_solve_ex(A: Value, B: Value, *, left: bool = True, out: Specs) -> Any:
    """Solve ``A x = B`` (``x A = B`` if not ``left``); also returns the LU factorization of A."""
    lead = out[1].shape[:-2]
    vector = B.rank == 1 or (B.rank == A.rank - 1 and hlo.same_shape(B.shape, A.shape[:-1]))

    def kernel(a: Value, b: Value) -> list[Value]:
        factors, pivots, info = lu.factor(matrices.batched(a))
        wide = hlo.expand_dims(b, [-1]) if vector else b
        shape = hlo.broadcast_shapes(lead, wide.shape[:-2])
        parts = [hlo.reshape(factors, out[1].shape), hlo.reshape(pivots, out[2].shape)]
        solved = _solved(
            matrices.broadcast_batch(parts[0], shape),
            matrices.broadcast_batch(parts[1], shape, 1),
            matrices.broadcast_batch(wide, shape),
            left=left,
            adjoint_=False,
        )
        return [solved, factors, pivots, info]

    return composed("linalg_solve", [A, B], kernel, out, {"left": left})


@lowers(
    aten.linalg_inv_ex.default, dtypes=DTYPES, ignores=("check_errors",), values=[succeeds("linalg.inv_ex")]
)
def linalg_inv_ex(A: Value, *, out: Specs) -> Any:
    """Inverse and LAPACK's info (the first zero pivot, from 1, or 0)."""

    def kernel(a: Value) -> list[Value]:
        factors, pivots, info = lu.factor(matrices.batched(a))
        one = matrices.identity(factors.shape, factors.dtype)
        return [_solved(factors, pivots, one, left=True, adjoint_=False), info]

    return composed("linalg_inv", [A], kernel, out)


# Determinants ------------------------------------------------------------------------------


def _sign_of_swaps(pivots: Value, like: Value) -> Value:
    """Return −1 to the power of the number of swaps, ``[batch]``, in the dtype of ``like``."""
    swapped = hlo.ne(pivots, hlo.iota(pivots.shape, 1, INT32) + 1)
    odd = hlo.reduce_sum(hlo.convert(swapped, INT32), [1]) & 1
    return 1.0 - hlo.convert(odd, like.dtype) * 2.0


def _factors_transpose(meta: Mapping[str, Any]) -> bool:
    """Whether ATen factorizes Aᵀ to save a copy; it returns these factors, and its gradients need them."""
    return bool(meta["A"].is_contiguous()) and not meta["A"].is_complex()


def _factored(a: Value, *, transpose: bool) -> tuple[Value, Value, Value]:
    a = matrices.batched(a)
    return lu.factor(transposed(a) if transpose else a)


@lowers(aten._linalg_det.default, dtypes=DTYPES)
def _linalg_det(A: Value, *, out: Specs, meta: Mapping[str, Any]) -> Any:
    """Determinant, and the factorization used to compute it."""
    transpose = _factors_transpose(meta)

    def kernel(a: Value) -> list[Value]:
        factors, pivots, _ = _factored(a, transpose=transpose)
        pivot = matrices.diagonal(factors)
        result = hlo.reduce([pivot], [1], [1], lambda x, y: x * y)[0] * _sign_of_swaps(pivots, pivot)
        return [result, factors, pivots]

    return composed("linalg_det", [A], kernel, out, {"factors_transpose": transpose})


@lowers(aten._linalg_slogdet.default, dtypes=DTYPES)
def _linalg_slogdet(A: Value, *, out: Specs, meta: Mapping[str, Any]) -> Any:
    """Sign (or phase) and logarithm of the determinant, and the factorization used to compute them."""
    transpose = _factors_transpose(meta)

    def kernel(a: Value) -> list[Value]:
        factors, pivots, _ = _factored(a, transpose=transpose)
        pivot = matrices.diagonal(factors)
        size = hlo.abs_(pivot)
        phase = hlo.select(size > 0.0, pivot / hlo.convert(size, pivot.dtype), hlo.zeros_like(pivot))
        sign = hlo.reduce([phase], [1], [1], lambda x, y: x * y)[0] * _sign_of_swaps(pivots, pivot)
        return [sign, hlo.reduce_sum(hlo.log(size), [1]), factors, pivots]

    return composed("linalg_slogdet", [A], kernel, out, {"factors_transpose": transpose})


# Symmetric indefinite matrices -------------------------------------------------------------


@lowers(
    aten.linalg_ldl_factor_ex.default,
    dtypes=DTYPES,
    ignores=("check_errors",),
    values=[succeeds("torch.linalg.ldl_factor_ex")],
)
def linalg_ldl_factor_ex(self: Value, *, hermitian: bool = False, out: Specs) -> Any:
    """L and D in one matrix, the pivots, and the first zero column (from 1) or 0, in LAPACK's layout."""

    def kernel(a: Value) -> tuple[Value, Value, Value]:
        a = matrices.batched(a)
        if is_empty(a.shape):
            return a, hlo.full(out[1].shape, 0, INT32), hlo.full(out[2].shape, 0, INT32)
        return ldl.factor(a, hermitian=hermitian and a.dtype.is_complex)

    return composed("linalg_ldl_factor", [self], kernel, out, {"hermitian": hermitian})


@lowers(aten.linalg_ldl_solve.default, dtypes=DTYPES)
def linalg_ldl_solve(LD: Value, pivots: Value, B: Value, *, hermitian: bool = False, out: Spec) -> Any:
    """Solve ``A x = B``, where ``LD`` and ``pivots`` are A's symmetric factorization."""

    def kernel(ld: Value, swaps: Value, b: Value) -> Value:
        lead = out.shape[:-2]
        ld, b = (matrices.broadcast_batch(x, lead) for x in (ld, b))
        if is_empty(b.shape):
            return b
        swaps = hlo.convert(matrices.broadcast_batch(swaps, lead, 1), INT32)
        return ldl.solve(ld, swaps, b, hermitian=hermitian and ld.dtype.is_complex)

    return composed("linalg_ldl_solve", [LD, pivots, B], kernel, out, {"hermitian": hermitian})
