"""Samples of ``lowering.aten.linalg_factor``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .linalg import general, regular

aten = namespace("aten")


@samples(aten.linalg_qr.default)
def _qr(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 4, 3),))
    yield Sample((general(make, 3, 3), "complete"))
    yield Sample((make(2, 0, 3),), note="empty")
    yield Sample((general(make, 4, 3), "r"))
    yield Sample((general(make, 3, 5),), note="wide", gradient=False)
    yield Sample((general(make, 5, 2), "complete"), note="tall and complete", gradient=False)
    yield Sample((make(3, 0), "complete"), note="no columns")
    yield Sample((general(make, 3, 4).mT,), note="non-contiguous")
    yield Sample((torch.zeros(3, 2, dtype=make.dtype),), note="zeros", gradient=False)


@samples(aten.geqrf.default, gradient=False, reason="PyTorch does not differentiate it")
def _geqrf(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 4, 3),))
    yield Sample((general(make, 3, 5),), note="wide")
    yield Sample((make(0, 3),), note="empty")
    yield Sample((torch.eye(3, 2, dtype=make.dtype),), note="triangular already")
    yield Sample((general(make, 1, 1),), note="size 1")


@samples(aten.linalg_householder_product.default)
def _householder_product(make: Make) -> Iterator[Sample]:
    for shape in ((2, 4, 3), (3, 3), (5, 2)):
        factors, tau = torch.geqrf(general(make, *shape))
        yield Sample((factors, tau))
    factors, tau = torch.geqrf(general(make, 4, 3))
    yield Sample((factors, tau[:2]), note="fewer reflections than columns")
    yield Sample((make(3, 0), make(0)), note="empty")


@samples(aten.ormqr.default)
def _ormqr(make: Make) -> Iterator[Sample]:
    factors, tau = torch.geqrf(general(make, 2, 4, 3))
    yield Sample((factors, tau, general(make, 2, 4, 2)))
    yield Sample((factors, tau, general(make, 2, 5, 4), False, True), note="from the right, adjoint")
    yield Sample((factors, tau, general(make, 2, 4, 2), True, True), note="adjoint", gradient=False)
    yield Sample((make(3, 0), make(0), make(3, 2)), note="no reflections")


@samples(aten.linalg_lu_factor_ex.default)
def _lu_factor(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 4, 4),))
    yield Sample((general(make, 5, 3),), note="tall")
    yield Sample((make(2, 0, 3),), note="empty")
    yield Sample((make.tensor([[1.0, 2.0], [2.0, 4.0]]),), note="singular", gradient=False)
    yield Sample((general(make, 3, 5),), note="wide")
    yield Sample((make.transposed(3, 3),), note="non-contiguous")
    yield Sample((torch.zeros(3, 3, dtype=make.dtype),), note="zeros", gradient=False)


@samples(aten.linalg_lu.default)
def _lu(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 3),))
    yield Sample((general(make, 4, 2),), note="tall")
    yield Sample((general(make, 2, 4),), note="wide")
    yield Sample((make(0, 2),), note="empty")


def packed(make: Make, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a packed factorization in any dtype: unpacking also accepts dtypes that LAPACK cannot factor."""
    values = make(*shape, dtype=make.dtype if make.dtype in _FACTORED else torch.float64)
    factors, pivots = torch.linalg.lu_factor(values)
    return factors.to(make.dtype), pivots


_FACTORED = (torch.float32, torch.float64, torch.complex64, torch.complex128)


@samples(aten.lu_unpack.default)
def _lu_unpack(make: Make) -> Iterator[Sample]:
    for shape in ((2, 3, 3), (4, 2), (2, 4)):
        yield Sample(packed(make, *shape))
    yield Sample((*packed(make, 3, 3), False, True), note="only P")
    yield Sample((*packed(make, 3, 3), True, False), note="only L and U")
    yield Sample((make(0, 0), torch.zeros(0, dtype=torch.int32)), note="empty")


@samples(aten.linalg_lu_solve.default)
def _lu_solve(make: Make) -> Iterator[Sample]:
    factors = torch.linalg.lu_factor(regular(make, 2, 3, 3))
    yield Sample((*factors, general(make, 2, 3, 2)))
    yield Sample((*factors, general(make, 2, 3)[..., None]), {"adjoint": True})
    yield Sample((*factors, general(make, 2, 4, 3)), {"left": False})
    yield Sample((*factors, general(make, 2, 4, 3)), {"left": False, "adjoint": True})
    yield Sample((*factors, general(make, 3, 1)), note="broadcast")
    yield Sample((make(0, 0), torch.zeros(0, dtype=torch.int32), make(0, 2)), note="empty")


@samples(aten._linalg_solve_ex.default)
def _solve(make: Make) -> Iterator[Sample]:
    yield Sample((regular(make, 2, 3, 3), general(make, 2, 3, 2)))
    yield Sample((regular(make, 2, 3, 3).mT, general(make, 2, 3)), note="batch of vectors, transposed matrix")
    yield Sample(
        (regular(make, 3, 3), general(make, 4, 2, 3)), {"left": False}, note="from the right, broadcast"
    )
    yield Sample((make(2, 0, 0), make(2, 0, 3)), note="empty")
    yield Sample((regular(make, 3, 3), general(make, 3)), note="vector")
    yield Sample((regular(make, 2, 1, 3, 3), general(make, 3, 3, 1)), note="batches broadcast")


@samples(aten.linalg_inv_ex.default)
def _inverse(make: Make) -> Iterator[Sample]:
    yield Sample((regular(make, 2, 3, 3),))
    yield Sample((regular(make, 4, 4).mT,), note="non-contiguous")
    yield Sample((make(0, 0),), note="empty")
    yield Sample((regular(make, 1, 1),), note="size 1")
    yield Sample((regular(make, 40, 40),), note="larger")


@samples(aten._linalg_det.default, aten._linalg_slogdet.default)
def _determinant(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 3),))
    # The factors behind the gradient depend on strides, which the harness's second trace does not keep.
    yield Sample((general(make, 4, 4).mT,), note="non-contiguous", gradient=False)
    yield Sample((make(2, 0, 0),), note="empty")
    yield Sample((make.tensor([[1.0, 2.0], [2.0, 4.0]]),), note="singular", gradient=False)
    yield Sample((general(make, 1, 1),), note="size 1")


def symmetric(make: Make, *shape: int, hermitian: bool = False) -> torch.Tensor:
    x = general(make, *shape)
    return x + (x.mH if hermitian else x.mT)


@samples(aten.linalg_ldl_factor_ex.default, gradient=False, reason="PyTorch does not differentiate it")
def _ldl_factor(make: Make) -> Iterator[Sample]:
    yield Sample((symmetric(make, 4, 5, 5),))
    yield Sample((symmetric(make, 4, 4, hermitian=True),), {"hermitian": True})
    yield Sample((make(2, 0, 0),), note="empty")
    yield Sample((make.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]),), note="2×2 pivots")
    yield Sample((torch.zeros(3, 3, dtype=make.dtype),), note="zeros")
    yield Sample((symmetric(make, 1, 1),), note="size 1")
    yield Sample((symmetric(make, 20, 20),), note="larger")


@samples(aten.linalg_ldl_solve.default, gradient=False, reason="PyTorch does not differentiate it")
def _ldl_solve(make: Make) -> Iterator[Sample]:
    def factors(*shape: int, hermitian: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.linalg.ldl_factor(symmetric(make, *shape, hermitian=hermitian), hermitian=hermitian)
        return found.LD, found.pivots

    yield Sample((*factors(4, 5, 5), general(make, 4, 5, 2)))
    yield Sample(
        (*factors(4, 4, hermitian=True), general(make, 3, 4, 2)), {"hermitian": True}, note="broadcast"
    )
    yield Sample((make(0, 0), torch.zeros(0, dtype=torch.int32), make(0, 2)), note="empty")
    yield Sample((*factors(7, 7), general(make, 7, 1)))
