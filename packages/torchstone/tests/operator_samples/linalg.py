"""Samples of ``lowering.aten.linalg``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def general(make: Make, *shape: int) -> torch.Tensor:
    """Matrices with elements around one."""
    return make(*shape, low=-1, high=1)


def regular(make: Make, *shape: int) -> torch.Tensor:
    """Square matrices far from singular."""
    return general(make, *shape) + 2 * torch.eye(shape[-1], dtype=make.dtype)


def positive(make: Make, *shape: int) -> torch.Tensor:
    """Hermitian positive definite matrices."""
    x = general(make, *shape)
    return x @ x.mH + torch.eye(shape[-1], dtype=make.dtype)


def factor(make: Make, *shape: int) -> torch.Tensor:
    """Return a Cholesky factor, with arbitrary numbers in the triangle that is not read."""
    return torch.linalg.cholesky(positive(make, *shape)) + general(make, *shape).triu(1)


@samples(aten.linalg_cholesky_ex.default)
def _cholesky_ex(make: Make) -> Iterator[Sample]:
    yield Sample((positive(make, 2, 3, 3),))
    yield Sample((positive(make, 5, 5),), {"upper": True})
    yield Sample((make(2, 0, 0),), note="empty")
    x = positive(make, 3, 4, 4)
    x[1, 2, 2] = -5
    # The rest of a factor that does not exist is unspecified.
    yield Sample(
        (x,), note="indefinite", gradient=False, canonical=lambda out: [out[0][0], out[0][2], out[1]]
    )
    yield Sample((positive(make, 1, 1),), note="size 1")
    yield Sample((positive(make, 4, 4).mT,), note="non-contiguous")
    yield Sample((positive(make, 40, 40),), note="several blocks")


@samples(aten.cholesky.default)
def _cholesky(make: Make) -> Iterator[Sample]:
    yield Sample((positive(make, 2, 3, 3),))
    yield Sample((positive(make, 5, 5), True), note="upper")
    yield Sample((make(0, 3, 3),), note="empty")
    yield Sample((positive(make, 2, 1, 1, 1),), note="size 1")


@samples(aten.cholesky_inverse.default)
def _cholesky_inverse(make: Make) -> Iterator[Sample]:
    yield Sample((factor(make, 2, 3, 3),))
    yield Sample((factor(make, 4, 4).mT, True), note="upper")
    yield Sample((make(0, 0),), note="empty")
    yield Sample((factor(make, 3, 3).mT, True), note="non-contiguous")


@samples(aten.cholesky_solve.default)
def _cholesky_solve(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 2), factor(make, 2, 3, 3)))
    yield Sample((general(make, 3, 2), factor(make, 4, 3, 3).mT, True), note="upper, broadcast")
    yield Sample((make(0, 2), make(0, 0)), note="empty")
    yield Sample((make(3, 0), factor(make, 3, 3)), note="no columns")
    yield Sample((general(make, 2, 3).mT, factor(make, 3, 3).mT.contiguous().mT), note="non-contiguous")


@samples(aten.linalg_solve_triangular.default)
def _solve_triangular(make: Make) -> Iterator[Sample]:
    yield Sample((regular(make, 2, 3, 3), general(make, 2, 3, 2)), {"upper": True})
    yield Sample(
        (regular(make, 3, 3), general(make, 4, 2, 3)),
        {"upper": False, "left": False},
        note="right, broadcast",
    )
    yield Sample((regular(make, 3, 3), general(make, 3, 1)), {"upper": False, "unitriangular": True})
    yield Sample((make(0, 0), make(0, 2)), {"upper": True}, note="empty")
    yield Sample((regular(make, 3, 3).mT, general(make, 2, 3).mT), {"upper": True}, note="non-contiguous")
    yield Sample((regular(make, 40, 40), general(make, 40, 3)), {"upper": True}, note="several blocks")


@samples(aten.triangular_solve.default)
def _triangular_solve(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 2), regular(make, 2, 3, 3)))
    yield Sample(
        (general(make, 3, 2), regular(make, 4, 3, 3), False, True), note="lower, transposed, broadcast"
    )
    yield Sample((general(make, 3, 2), regular(make, 3, 3), True, False, True), note="unit diagonal")
    yield Sample((make(0, 2), make(0, 0)), note="empty")
