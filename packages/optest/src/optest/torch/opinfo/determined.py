"""Determined forms: how to compare results that are only partly determined.

Some operators may return any of several right results: a factorization leaves the phases of its
vectors open, an unstable sort and a selection leave open the order of equal values. For these, the
suite compares only what the operator determines. Each form is a function of the entry's arguments,
or of its result, written with PyTorch's own operators; eager PyTorch runs the same function.
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
"""Phases whose calls return two things: the tensors written to, and what the operator returned."""


def determined(group: Group, case: Case) -> Bound | None:
    """Return the case's call reduced to what its entry determines; None if it determines everything."""
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
    """A form that is applied to each of the two results of a call in a ``DOUBLED`` phase."""

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
    """Return the matrix that has these eigenvalues and eigenvectors, and the lengths of the vectors.

    The eigenvalues come in no fixed order; the matrix does not depend on it.
    """
    values, vectors = result
    matrix = torch.linalg.solve(vectors, vectors * values.unsqueeze(-2), left=False)
    return [matrix, torch.linalg.vector_norm(vectors, dim=-2)]


def _powers(values: Tensor) -> Tensor:
    """Return the powers 1 to n of the n values, along the second-to-last dimension."""
    size = values.shape[-1]
    return values.unsqueeze(-2).expand(*values.shape[:-1], size, size).cumprod(-2)


def _of_eigvals(values: Tensor) -> list[Tensor]:
    """Return the sums of the powers of the values, which determine the values but not their order."""
    return [_powers(values).sum(-1)]


def _of_eig_without_phases(result: Any) -> list[Tensor]:
    """Return the sums of powers, plain and weighted by each row of the squared vectors.

    The two results have the shapes of the eigenvalues and of the eigenvectors.
    """
    values, vectors = result
    powers = _powers(values)
    return [powers.sum(-1), vectors.abs().square() @ powers.real.mT]


def _adjoint(matrix: Tensor) -> Tensor:
    return matrix.mT.conj()


def _of_lstsq(result: Any) -> list[Tensor]:
    """Return the solution only: some LAPACK drivers leave the residuals and singular values unwritten."""
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
"""The function applied to the result of an entry, by entry."""

UNORDERED: dict[str, Form] = {"linalg.eig": _of_eig_without_phases, "linalg.eigvals": _of_eigvals}
"""The function applied to a result that is differentiated: it returns as many tensors, of the same shapes."""


# Sorts and selections -----------------------------------------------------------------------


def _sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> list[Tensor]:
    values, places = torch.sort(self, stable=stable, dim=dim, descending=descending)
    return [values, *_of_places(self, places, dim)]


def _stable_sort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    """Sort stably, so that it is determined which of several equal values each derivative belongs to."""
    return torch.sort(self, stable=True, dim=dim, descending=descending)


def _argsort(self: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False) -> list[Tensor]:
    return _of_places(self, torch.argsort(self, stable=stable, dim=dim, descending=descending), dim)


def _of_places(self: Tensor, places: Tensor, dim: int) -> list[Tensor]:
    """Return the values at ``places``, and ``places`` in order, to show that each occurs once.

    Equal values may come in any order.
    """
    if not self.dim():
        return [places]
    return [self.gather(dim, places), places.sort(dim).values]


ORDERED: dict[str, Form] = {"sort": _sort, "argsort": _argsort}
"""The function called in place of an unstable sort, by entry."""


def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> list[Tensor]:
    value, place = torch.kthvalue(self, k, dim, keepdim)
    return [value, _there(self, place, dim, keepdim)]


def _there(self: Tensor, place: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Return the value at the place that a selection along ``dim`` returned."""
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
"""The function called in place of a selection, which may return the place of any of several equal values."""
