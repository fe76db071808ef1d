"""Determined forms: how to compare results that are only partly determined.

A factorisation, whose vectors have free phases, a sort that is not stable and a selection
among equal values are compared as what they determine. Each form is a function of the
entry's arguments, or of its result, in PyTorch's own operators; eager PyTorch runs the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from .calls import FORWARD, Tensor
from .groups import Group
from .phases import Case
from .samples import Bound

Form = Callable[..., Any]

DOUBLED = ("out", "inplace")
"""Phases whose calls give the written tensors and what was returned."""


def determined(group: Group, case: Case) -> Bound | None:
    """The case's call giving what its entry determines; None where that is everything."""
    bound, plain, doubled = case.bound, case.call.kind == FORWARD, group.phase in DOUBLED
    if group.entry in DETERMINED and plain:
        then: Form = DETERMINED[group.entry]
        return replace(bound, then=_OfBoth(then) if doubled else then)
    if group.entry in UNORDERED and not plain:
        return replace(bound, then=UNORDERED[group.entry])
    if group.entry in ORDERED and not doubled and not bound.kwargs.get("stable"):
        return replace(bound, target=ORDERED[group.entry] if plain else _stable_sort)
    if group.entry in SELECTED and plain and not doubled:
        return replace(bound, target=SELECTED[group.entry])
    return None


@dataclass(frozen=True)
class _OfBoth:
    """A form of each of two results."""

    form: Form

    def __call__(self, results: Any) -> list[Tensor]:
        return [tensor for result in results for tensor in self.form(result)]


# Factorisations -----------------------------------------------------------------------------


def _of_svd(result: Any) -> list[Tensor]:
    u, s, v = result
    return [s, u[..., : s.shape[-1]] * s.unsqueeze(-2).to(u.dtype) @ _adjoint(v)[..., : s.shape[-1], :]]


def _of_linalg_svd(result: Any) -> list[Tensor]:
    u, s, vh = result
    return [s, u[..., : s.shape[-1]] * s.unsqueeze(-2).to(u.dtype) @ vh[..., : s.shape[-1], :]]


def _of_eigh(result: Any) -> list[Tensor]:
    values, vectors = result
    return [values, vectors * values.unsqueeze(-2).to(vectors.dtype) @ _adjoint(vectors)]


def _of_eig(result: Any) -> list[Tensor]:
    """The matrix with these eigenvalues and vectors, which have no order, and the vectors' lengths."""
    values, vectors = result
    matrix = torch.linalg.solve(vectors, vectors * values.unsqueeze(-2), left=False)
    return [matrix, torch.linalg.vector_norm(vectors, dim=-2)]


def _powers(values: Tensor) -> Tensor:
    """The powers of the values, from the first up to their number, along the second-to-last dimension."""
    size = values.shape[-1]
    return values.unsqueeze(-2).expand(*values.shape[:-1], size, size).cumprod(-2)


def _of_eigvals(values: Tensor) -> list[Tensor]:
    """The sums of their powers, which determine numbers without an order."""
    return [_powers(values).sum(-1)]


def _of_eig_without_phases(result: Any) -> list[Tensor]:
    """As :func:`_of_eigvals`, and the sums weighted by each row of squared vectors: shaped as both are."""
    values, vectors = result
    powers = _powers(values)
    return [powers.sum(-1), vectors.abs().square() @ powers.real.mT]


def _adjoint(matrix: Tensor) -> Tensor:
    return matrix.mT.conj()


def _of_lstsq(result: Any) -> list[Tensor]:
    """The solution: LAPACK leaves residuals and singular values unwritten for some drivers."""
    return [result[0]]


DETERMINED: dict[str, Form] = {
    "linalg.lstsq": _of_lstsq,
    "linalg.lstsq.grad_oriented": _of_lstsq,
    "pca_lowrank": _of_svd,
    "svd": _of_svd,
    "svd_lowrank": _of_svd,
    "linalg.svd": _of_linalg_svd,
    "linalg.eig": _of_eig,
    "linalg.eigh": _of_eigh,
    "linalg.eigvals": _of_eigvals,
}
"""What is made of the result."""

UNORDERED: dict[str, Form] = {"linalg.eig": _of_eig_without_phases, "linalg.eigvals": _of_eigvals}
"""What is made of the result where it is differentiated: as many tensors of the same shapes."""


# Sorts and selections -----------------------------------------------------------------------


def _sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> list[Tensor]:
    values, places = torch.sort(self, stable=stable, dim=dim, descending=descending)
    return [values, *_of_places(self, places, dim)]


def _stable_sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    """What is differentiated: which of several equal values a derivative belongs to, a stable sort says."""
    return torch.sort(self, stable=True, dim=dim, descending=descending)


def _argsort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> list[Tensor]:
    return _of_places(self, torch.argsort(self, stable=stable, dim=dim, descending=descending), dim)


def _of_places(self: Tensor, places: Tensor, dim: int) -> list[Tensor]:
    """What is at the places, and that each is named once: equal values may come in any order."""
    if not self.dim():
        return [places]
    return [self.gather(dim, places), places.sort(dim).values]


ORDERED: dict[str, Form] = {"sort": _sort, "argsort": _argsort}
"""What stands for a sort that is not stable."""


def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    value, place = torch.kthvalue(self, k, dim, keepdim)
    return [value, _there(self, place, dim, keepdim)]


def _there(self: Tensor, place: Tensor, dim: int, keepdim: bool) -> Tensor:
    """What is at the place that a selection along ``dim`` names."""
    if not self.dim():
        return place
    there = self.gather(dim, place if keepdim else place.unsqueeze(dim))
    return there if keepdim else there.squeeze(dim)


def _mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    value, place = torch.mode(self, dim, keepdim)
    return [value, _there(self, place, dim, keepdim)]


def _median(
    self: Tensor, dim: int | None = None, keepdim: bool = False, *, nan: bool = False
) -> list[Tensor]:
    function = torch.nanmedian if nan else torch.median
    if dim is None:
        return [function(self)]
    value, place = function(self, dim, keepdim)
    return [value, _there(self, place, dim, keepdim)]


def _topk(self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Tensor]:
    values, places = torch.topk(self, k, dim, largest, sorted)
    if not self.dim():
        return [values, places]
    named_once = places.sort(dim).values.diff(dim=dim) != 0
    return [values, self.gather(dim, places), named_once]


SELECTED: dict[str, Form] = {
    "kthvalue": _kthvalue,
    "median": _median,
    "mode": _mode,
    "nanmedian": partial(_median, nan=True),
    "topk": _topk,
}
"""What stands for a selection, which may name any of several equal values."""
