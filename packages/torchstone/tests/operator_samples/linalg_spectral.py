"""Samples of ``lowering.aten.linalg_spectral``.

Eigenvectors and singular vectors have free phases: what is compared is what they make up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .linalg import general

aten = namespace("aten")

Tensors = Sequence[torch.Tensor]


def hermitian(make: Make, *shape: int) -> torch.Tensor:
    x = general(make, *shape)
    return x + x.mH


def spectrum(outputs: Tensors) -> list[torch.Tensor]:
    """Eigenvalues, ``V diag(λ) Vᴴ`` and ``Vᴴ V``."""
    values, vectors = outputs
    if not vectors.numel():
        return [values, vectors]
    return [values, (vectors * values[..., None, :]) @ vectors.mH, vectors.mH @ vectors]


def decomposition(outputs: Tensors) -> list[torch.Tensor]:
    """Return the singular values, ``U diag(S) Vᴴ``, and products that show that both factors are unitary."""
    u, s, vh = outputs
    if not u.numel() or not vh.numel():
        return [s, u @ u.mH if u.ndim > 1 else u, vh.mH @ vh if vh.ndim > 1 else vh]
    k = s.shape[-1]
    return [s, (u[..., :k] * s[..., None, :]) @ vh[..., :k, :], u.mH @ u, vh @ vh.mH]


def ordered(values: torch.Tensor) -> torch.Tensor:
    """Sort complex eigenvalues by their projections on a slanted line, which rarely coincide."""
    return values.gather(-1, (values.real + 0.37 * values.imag).argsort(-1))


def eigensystem(outputs: Tensors) -> list[torch.Tensor]:
    """Return the eigenvalues in a fixed order, ``V diag(λ) V⁻¹`` and the lengths of the vectors."""
    values, vectors = outputs
    whole = (vectors * values[..., None, :]) @ torch.linalg.inv(vectors)
    return [ordered(values), whole, vectors.abs().square().sum(-2)]


@samples(aten._linalg_eigh.default)
def _eigh(make: Make) -> Iterator[Sample]:
    yield Sample((hermitian(make, 2, 4, 4),), canonical=spectrum)
    yield Sample((general(make, 5, 5), "U"), note="upper triangle", canonical=spectrum)
    yield Sample((make(2, 0, 0),), note="empty", canonical=spectrum)
    yield Sample((hermitian(make, 3, 3), "L", False), note="values only", gradient=False, canonical=spectrum)
    yield Sample((general(make, 1, 1),), note="size 1", canonical=spectrum)
    yield Sample((torch.zeros(3, 3, dtype=make.dtype),), note="zeros", gradient=False, canonical=spectrum)
    repeated = torch.ones(4, 4, dtype=make.dtype)
    yield Sample((repeated,), note="repeated eigenvalues", gradient=False, canonical=spectrum)
    yield Sample((hermitian(make, 3, 3) * 1e30,), note="large", gradient=False, canonical=lambda out: out[:1])
    yield Sample((hermitian(make, 21, 21),), note="odd size", gradient=False, canonical=spectrum)


@samples(aten._linalg_svd.default)
def _svd(make: Make) -> Iterator[Sample]:
    # PyTorch tests complex phases by value before it differentiates, which no trace can follow.
    smooth = not make.is_complex
    yield Sample((general(make, 2, 4, 3),), gradient=smooth, canonical=decomposition)
    yield Sample((general(make, 3, 5), True), note="wide, full", gradient=False, canonical=decomposition)
    yield Sample((make(2, 0, 3), True), note="empty", gradient=False, canonical=decomposition)
    yield Sample(
        (general(make, 4, 4), False, False), note="values only", gradient=False, canonical=decomposition
    )
    yield Sample((general(make, 5, 2), True), note="tall, full", gradient=False, canonical=decomposition)
    yield Sample((general(make, 1, 1),), note="size 1", gradient=smooth, canonical=decomposition)
    yield Sample(
        (torch.zeros(3, 2, dtype=make.dtype),), note="zeros", gradient=False, canonical=decomposition
    )
    outer = general(make, 5, 1) @ general(make, 1, 4)
    yield Sample((outer,), note="rank one", gradient=False, canonical=decomposition)
    yield Sample(
        (make.transposed(4, 3, low=-1, high=1),),
        note="non-contiguous",
        gradient=smooth,
        canonical=decomposition,
    )


@samples(aten.linalg_pinv.atol_rtol_tensor)
def _pinv(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 4, 3),))
    yield Sample((hermitian(make, 3, 3),), {"hermitian": True})
    yield Sample((make(3, 0),), note="empty")
    low_rank = general(make, 4, 2) @ general(make, 2, 3)
    yield Sample((low_rank,), {"rtol": torch.tensor(1e-3)}, note="singular")
    yield Sample((general(make, 2, 3, 3),), {"atol": torch.tensor([0.1, 0.5])}, note="atol of each matrix")
    yield Sample((general(make, 3, 5),), {"atol": torch.tensor(0.0), "rtol": torch.tensor(0.1)}, note="wide")


@samples(aten.linalg_lstsq.default)
def _lstsq(make: Make) -> Iterator[Sample]:
    for driver, gradient in (("gels", True), ("gelss", False)):
        tall, wide = (
            (general(make, 2, 4, 3), general(make, 2, 4, 2)),
            (general(make, 2, 3), general(make, 2, 2)),
        )
        yield Sample(tall, {"driver": driver}, gradient=gradient)
        yield Sample(wide, {"driver": driver}, note="wide", gradient=gradient)
    low_rank = general(make, 4, 2) @ general(make, 2, 3)
    yield Sample((low_rank, general(make, 4, 2), 1e-3), note="rank two of three", gradient=False)
    yield Sample((low_rank.mT, general(make, 3, 2), 1e-3), {"driver": "gelsd"}, gradient=False)
    yield Sample((general(make, 2, 3, 3), general(make, 2, 3)), note="vectors")
    one, several = general(make, 1, 3, 3), general(make, 2, 3, 2)
    yield Sample((one, several), {"driver": "gelsd"}, note="one matrix for several", gradient=False)
    yield Sample((general(make, 5, 3).mT, general(make, 3)), {"driver": "gelsd"}, note="non-contiguous")
    yield Sample((make(3, 0), make(3, 2)), {"driver": "gelsd"}, note="no unknowns", gradient=False)
    yield Sample((make(0, 3), make(0, 2)), note="no equations", gradient=False)
    yield Sample((general(make, 1, 1), general(make, 1, 1)), note="size 1")


@samples(aten.linalg_eig.default)
def _eig(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 3),), canonical=eigensystem)
    yield Sample((make.tensor([[0.0, 1.0], [-1.0, 0.0]]),), note="rotation", canonical=eigensystem)
    yield Sample((make(2, 0, 0),), note="empty")
    yield Sample((general(make, 1, 1),), note="size 1", canonical=eigensystem)
    yield Sample((general(make, 5, 5).mT,), note="non-contiguous", canonical=eigensystem)
    yield Sample((torch.diag(make.tensor([3.0, 1.0, 2.0])),), note="diagonal", canonical=eigensystem)
    companion = torch.diag(make.tensor([1.0, 1.0, 1.0]), -1)
    companion[0, 3] = 1
    yield Sample((companion,), note="roots of unity: shifts must break the symmetry", canonical=eigensystem)


@samples(aten._linalg_eigvals.default)
def _eigvals(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 3),), canonical=lambda out: [ordered(out[0])])
    yield Sample((general(make, 5, 5),), canonical=lambda out: [ordered(out[0])])
    yield Sample((make(0, 0),), note="empty")
    yield Sample((general(make, 1, 1),), note="size 1")


@samples(aten.linalg_matrix_exp.default)
def _matrix_exp(make: Make) -> Iterator[Sample]:
    yield Sample((general(make, 2, 3, 3),))
    yield Sample((torch.stack([general(make, 3, 3), 9 * general(make, 3, 3)]),), note="different scales")
    yield Sample((make(2, 0, 0),), note="empty")
    yield Sample((general(make, 1, 1),), note="size 1")
    yield Sample((torch.zeros(3, 3, dtype=make.dtype),), note="zeros")
    yield Sample((make.transposed(4, 4, low=-1, high=1),), note="non-contiguous")
