"""Capture rules for results whose size or position depends on values: one-hot, masks, ``narrow``."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...lowering.own import own
from ..operators.implicit import selected_rows
from .registry import bound, capture_rule, copy_of_view

Tensor = torch.Tensor


@capture_rule(F.one_hot)
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Use the declared number of classes (``classes``), where PyTorch uses the largest value plus one."""
    if num_classes != -1:
        return NotImplemented
    return F.one_hot(tensor, bound("classes", "the number of classes of one_hot without num_classes"))


def _room() -> int:
    """Return the declared number of selected elements (``selected``); 0 if there is none."""
    return bound("selected", "the number of elements that a mask selects", 0)


@capture_rule(torch.masked_select, torch.Tensor.masked_select, of=[own.masked_select])
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """Return the declared number of elements (``selected``): those that the mask selects, then zeros."""
    if not _room():
        return NotImplemented
    selected: Tensor = own.masked_select(input, mask, _room())
    return selected


@capture_rule(torch.bincount, torch.Tensor.bincount)
def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Return the declared number of bins (``bins``), at least ``minlength``; larger values are ignored."""
    declared = bound("bins", "the number of bins of bincount", 0)
    if not declared:
        return NotImplemented
    room = max(declared, minlength)
    if weights is None:
        weights = torch.ones_like(input, dtype=torch.int64)
    elif weights.dtype != torch.float32:
        weights = weights.double()
    counts = torch.zeros(room + 1, dtype=weights.dtype)
    return counts.scatter_add(0, input.long().clamp(max=room), weights)[:room]


@capture_rule(torch.Tensor.__getitem__, of=[torch.ops.aten.index.Tensor])
def indexed_by_a_mask(self: Tensor, index: Any) -> Tensor:
    """Return ``x[mask]`` with the declared number of rows (``selected``); other indices go to PyTorch."""
    if not isinstance(index, Tensor) or index.dtype != torch.bool or not index.ndim or not _room():
        return NotImplemented
    return selected_rows(self.flatten(0, index.ndim - 1), index.flatten(), _room())


@capture_rule(torch.nonzero, torch.Tensor.nonzero, of=[torch.ops.aten.nonzero_static])
def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Return the declared number of places (``selected``): those of nonzero elements, then −1."""
    if not _room():
        return NotImplemented
    found = torch.nonzero_static(input, size=_room(), fill_value=-1)
    return found.unbind(1) if as_tuple else found


@capture_rule(torch.narrow, torch.Tensor.narrow)
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """Take the start from a tensor. The result is a copy; the model may not write into it or ``input``."""
    if not isinstance(start, Tensor) or start.ndim or start.is_floating_point() or not input.ndim:
        return NotImplemented
    if isinstance(length, int) and isinstance(input.shape[dim], int) and not 0 <= length <= input.shape[dim]:
        return NotImplemented  # PyTorch's own error
    first = torch.where(start < 0, start + input.shape[dim], start)
    return copy_of_view(
        "narrow with a tensor as its start", input.index_select(dim, first + torch.arange(length)), input
    )
