"""Eigenvalues, singular values, pseudo-inverses, least squares and functions of matrices.

The loops are in ``lowering.linear_algebra``. Each operator is a composite, so a
backend with routines of its own can use those. The signs and phases of
eigenvectors and singular vectors are free and may differ from LAPACK's. So may
the order of the eigenvalues of general matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import hlo
from ...dtypes import BOOLEAN, HALF, INT64, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import is_empty
from ..composites import composed
from ..linear_algebra import exponential, householder, jacobi, matrices, schur
from ..linear_algebra.failures import EIGENVALUES, PSEUDO_INVERSE, SINGULAR_VALUES
from ..linear_algebra.matrices import adjoint, product
from ..registry import Spec, lowers
from .linalg import DTYPES

aten = namespace("aten")

Specs = tuple[Spec, ...]


def _scaled(a: Value) -> tuple[Value, Value]:
    """Divide ``a`` by its largest element, to keep squares in range; also return that, ``[batch]``."""
    largest = hlo.reduce_max(hlo.abs_(a), [1, 2])
    scale = hlo.select(largest > 0.0, largest, hlo.full_like(largest, 1))
    divisor = hlo.broadcast_in_dim(scale, a.shape, [0])
    if a.dtype.is_complex:
        return hlo.complex_(hlo.real(a) / divisor, hlo.imag(a) / divisor), scale
    return a / divisor, scale


def _times(values: Value, scale: Value) -> Value:
    return values * hlo.broadcast_in_dim(scale, values.shape, [0])


# Hermitian matrices -----------------------------------------------------------------------


def _eigh(a: Value, *, lower: bool, vectors: bool) -> tuple[Value, Value | None]:
    """Eigenvalues and eigenvectors of ``[batch, n, n]``; reads one triangle."""
    half = matrices.lower(a if lower else adjoint(a))
    on_diagonal = hlo.eq(matrices.row_of(half), matrices.column_of(half))
    half = hlo.select(on_diagonal, hlo.convert(hlo.real(half), half.dtype), half)
    scaled, scale = _scaled(half + adjoint(matrices.lower(half, 1)))
    values, found = jacobi.eigh(scaled, vectors=vectors)
    return _times(values, scale), found


@lowers(
    aten._linalg_eigh.default,
    dtypes=DTYPES,
    gaps=dict.fromkeys(INTEGRAL | BOOLEAN, "eager accepts it for empty matrices only"),
)
def _linalg_eigh(A: Value, UPLO: str = "L", compute_v: bool = True, *, out: Specs) -> Any:
    """Ascending eigenvalues and, if requested, eigenvectors of a Hermitian matrix."""

    def kernel(a: Value) -> list[Value]:
        if is_empty(a.shape):
            return [hlo.full(spec.shape, 0, spec.dtype) for spec in out]
        values, vectors = _eigh(matrices.batched(a), lower=UPLO.upper() == "L", vectors=compute_v)
        return [values, hlo.full(out[1].shape, 0, a.dtype) if vectors is None else vectors]

    return composed("linalg_eigh", [A], kernel, out, {"lower": UPLO.upper() == "L", "vectors": compute_v})


# Singular values ----------------------------------------------------------------------------


def _svd(a: Value, *, full: bool) -> tuple[Value, Value, Value]:
    """``(U, S, Vᴴ)`` of ``[batch, m, n]``; a tall matrix is first reduced by its QR factorization."""
    batch, m, n = a.shape
    if m < n:
        u, s, vh = _svd(adjoint(a), full=full)
        return adjoint(vh), s, adjoint(u)
    scaled, scale = _scaled(a)
    if m == n:
        u, s, v = jacobi.svd(scaled)
        return u, _times(s, scale), adjoint(v)
    factors, tau = householder.factor(scaled)
    u, s, v = jacobi.svd(matrices.upper(hlo.slice_axis(factors, 1, 0, n)))
    below = m - n
    u = hlo.pad(u, 0, [0, 0, 0], [0, below, below if full else 0])
    if full:
        u = u + hlo.pad(matrices.identity((batch, below, below), u.dtype), 0, [0, n, n], [0, 0, 0])
    return householder.apply(factors, tau, u), _times(s, scale), adjoint(v)


def _svd_of_nothing(shape: hlo.Shape, a: Value, *, full: bool) -> tuple[Value, Value, Value]:
    batch, m, n = shape
    k = min(m, n)
    u = matrices.identity((batch, m, m if full else k), a.dtype)
    vh = matrices.identity((batch, n if full else k, n), a.dtype)
    return u, hlo.full((batch, k), 0, a.dtype.real), vh


@lowers(
    aten._linalg_svd.default, dtypes=DTYPES, ignores=("driver",), values=[SINGULAR_VALUES]
)  # drivers exist on CUDA only
def _linalg_svd(A: Value, full_matrices: bool = False, compute_uv: bool = True, *, out: Specs) -> Any:
    """``U``, descending ``S`` and ``Vᴴ``; only ``S`` if not ``compute_uv``."""

    def kernel(a: Value) -> list[Value]:
        a = matrices.batched(a)
        if is_empty(a.shape):
            u, s, vh = _svd_of_nothing(a.shape, a, full=full_matrices)
        else:
            u, s, vh = _svd(a, full=full_matrices and compute_uv)
        nothing = hlo.full((0,), 0, a.dtype)
        return [u, s, vh] if compute_uv else [nothing, s, nothing]

    attributes = {"full_matrices": full_matrices, "compute_uv": compute_uv}
    return composed("linalg_svd", [A], kernel, out, attributes)


def _inverted_where(keep: Value, values: Value) -> Value:
    safe = hlo.select(keep, values, hlo.full_like(values, 1))
    return hlo.select(keep, 1.0 / safe, hlo.zeros_like(values))


def _pseudo_inverse(a: Value, cutoff: Callable[[Value], Value], *, hermitian: bool) -> Value:
    """Return ``[batch, n, m]``; singular values up to ``cutoff(largest)`` (``[batch]``) count as zero."""
    if hermitian:
        values, vectors = _eigh(a, lower=True, vectors=True)
        assert vectors is not None
        left, sizes, right = vectors, hlo.abs_(values), adjoint(vectors)
    else:
        left, sizes, right = _svd(a, full=False)
        values = sizes
    limit = hlo.broadcast_in_dim(cutoff(hlo.reduce_max(sizes, [1])), sizes.shape, [0])
    inverse = _inverted_where(sizes > limit, values)
    return product(matrices.scaled_columns(adjoint(right), inverse), adjoint(left))


@lowers(aten.linalg_pinv.atol_rtol_tensor, dtypes=DTYPES, values=[PSEUDO_INVERSE])
def linalg_pinv(
    self: Value, *, atol: Value | None = None, rtol: Value | None = None, hermitian: bool = False, out: Spec
) -> Any:
    """Moore–Penrose inverse; singular values up to max(atol, rtol · largest) count as zero."""
    default = matrices.epsilon(self.dtype) * hlo.at_least(*self.shape[-2:])
    lead = out.shape[:-2]  # if there are more tolerances than matrices, these are repeated

    def kernel(a: Value, atol: Value | None, rtol: Value | None) -> Value:
        if is_empty(a.shape):
            return hlo.full(out.shape, 0, a.dtype)

        def per_matrix(tolerance: Value) -> Value:
            return hlo.reshape(hlo.broadcast_to(hlo.real(tolerance), lead), (hlo.product(lead),))

        def cutoff(largest: Value) -> Value:
            absolute = hlo.zeros_like(largest) if atol is None else per_matrix(atol)
            # A given atol replaces the default rtol.
            usual = hlo.select(absolute > 0.0, hlo.zeros_like(largest), default)
            relative = usual if rtol is None else per_matrix(rtol)
            return hlo.maximum(absolute, relative * largest)

        return _pseudo_inverse(matrices.broadcast_batch(a, lead), cutoff, hermitian=hermitian)

    tolerances = [None if t is None else hlo.convert(t, self.dtype.real) for t in (atol, rtol)]
    return composed("linalg_pinv", [self, *tolerances], kernel, out, {"hermitian": hermitian})


# Least squares ----------------------------------------------------------------------------


def _of_full_rank(a: Value, b: Value) -> Value:
    """The shortest ``x`` that minimizes ``|b - a x|``, by QR: LAPACK's ``gels``."""
    _, m, n = a.shape
    if m < n:
        factors, tau = householder.factor(adjoint(a))
        r = matrices.upper(hlo.slice_axis(factors, 1, 0, m))
        z = matrices.triangular(r, b, lower=False, transpose="ADJOINT")
        return householder.apply(factors, tau, hlo.pad_axis(z, 0, 1, 0, n - m))
    factors, tau = householder.factor(a)
    turned = householder.apply(factors, tau, b, adjoint=True)
    r = matrices.upper(hlo.slice_axis(factors, 1, 0, n))
    return matrices.triangular(r, hlo.slice_axis(turned, 1, 0, n), lower=False)


def _of_any_rank(a: Value, b: Value, tolerance: float) -> tuple[Value, Value, Value]:
    """``(x, rank, singular values)``; singular values up to ``tolerance`` times the largest count as zero."""
    left, sizes, right = _svd(a, full=False)
    largest = hlo.broadcast_in_dim(hlo.reduce_max(sizes, [1]), sizes.shape, [0])
    kept = sizes > largest * tolerance
    parts = product(adjoint(left), b)
    inverse = hlo.convert(hlo.expand_dims(_inverted_where(kept, sizes), [2]), b.dtype)
    x = product(adjoint(right), parts * hlo.broadcast_to(inverse, parts.shape))
    return x, hlo.reduce_sum(hlo.convert(kept, INT64), [1]), sizes


def _squared_residuals(a: Value, b: Value, x: Value, rank: Value | None) -> Value:
    """``|b - a x|²`` of each column, ``[batch, columns]``; NaN unless all matrices have full ``rank``."""
    found = hlo.reduce_sum(matrices.squared_size(b - product(a, x)), [1])
    if rank is None:
        return found
    lacking = matrices.any_of(rank < a.shape[2])
    return hlo.select(hlo.broadcast_to(lacking, found.shape), float("nan"), found)


def _first_batches(x: Value, lead: hlo.Shape, shape: hlo.Shape) -> Value:
    """Restore the batch axes ``lead`` of ``[batch, …]``, and cut them to ``shape``: repetitions are equal."""
    whole = (*lead, *x.shape[1:])
    if len(whole) != len(shape):
        return x
    return hlo.slice_(hlo.reshape(x, whole), [0] * len(shape), shape)


@lowers(aten.linalg_lstsq.default, dtypes=DTYPES)
def linalg_lstsq(
    self: Value, b: Value, rcond: float | None = None, *, driver: str | None = None, out: Specs
) -> Any:
    """Least squares: solution, residuals, rank and singular values, as far as the driver provides them.

    Residuals are NaN where PyTorch returns no residuals because a matrix lacks full rank.
    """
    m, n = self.shape[-2:]
    unit = matrices.epsilon(self.dtype)
    tolerance = unit * hlo.at_least(m, n) if rcond is None else unit if rcond < 0 else rcond
    vector, own = b.rank < self.rank, self.shape[:-2]

    def kernel(a: Value, b: Value) -> list[Value]:
        b = hlo.expand_dims(b, [-1]) if vector else b
        lead = hlo.broadcast_shapes(own, b.shape[:-2])
        a, b = (matrices.broadcast_batch(x, lead) for x in (a, b))
        batch, _, columns = b.shape
        rank, sizes = None, hlo.full((batch, hlo.at_most(m, n)), 0, a.dtype.real)
        if is_empty((*a.shape, columns)):
            x = hlo.full((batch, n, columns), 0, a.dtype)
        elif driver == "gels":
            x = _of_full_rank(a, b)
        else:
            x, rank, sizes = _of_any_rank(a, b, tolerance)
        results = [x, _squared_residuals(a, b, x, rank), rank, sizes]
        return [
            hlo.full(spec.shape, 0, spec.dtype)
            if found is None or is_empty(spec.shape)
            else _first_batches(found, lead, spec.shape)
            for found, spec in zip(results, out, strict=True)
        ]

    attributes = {"rcond": rcond, "driver": driver}
    return composed("linalg_lstsq", [self, b], kernel, out, attributes)


# General matrices -----------------------------------------------------------------------------


@lowers(aten.linalg_eig.default, dtypes=DTYPES, values=[EIGENVALUES])
def linalg_eig(self: Value, *, out: Specs) -> Any:
    """Complex eigenvalues, and eigenvectors of unit length whose largest component is real."""

    def kernel(a: Value) -> list[Value]:
        if is_empty(a.shape):
            return [hlo.full(spec.shape, 0, spec.dtype) for spec in out]
        t, q = schur.schur(hlo.convert(matrices.batched(a), out[0].dtype))
        return [matrices.diagonal(t), schur.eigenvectors(t, q)]

    return composed("linalg_eig", [self], kernel, out)


@lowers(aten._linalg_eigvals.default, dtypes=DTYPES, values=[EIGENVALUES])
def _linalg_eigvals(self: Value, *, out: Spec) -> Any:
    """Complex eigenvalues."""

    def kernel(a: Value) -> Value:
        if is_empty(a.shape):
            return hlo.full(out.shape, 0, out.dtype)
        return matrices.diagonal(schur.schur(hlo.convert(matrices.batched(a), out.dtype))[0])

    return composed("linalg_eigvals", [self], kernel, out)


@lowers(aten.linalg_matrix_exp.default, dtypes=DTYPES | HALF)
def linalg_matrix_exp(self: Value, *, out: Spec) -> Any:
    """``exp(A)``."""

    def kernel(a: Value) -> Value:
        return a if is_empty(a.shape) else exponential.exponential(matrices.batched(a))

    return composed("linalg_matrix_exp", [self], kernel, out)
