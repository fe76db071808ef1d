"""Capture rules for results as long as values say: one-hot vectors, selections by a mask."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .registry import bound, capture_rule


@capture_rule(F.one_hot)
def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """As many classes as are declared, where PyTorch takes one more than the largest value."""
    if num_classes != -1:
        return NotImplemented
    return F.one_hot(tensor, bound("classes", "the number of classes of one_hot without num_classes"))


@capture_rule(torch.masked_select, torch.Tensor.masked_select)
def masked_select(input: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """As many elements as are declared (``selected``): those that the mask selects, then zeros."""
    room = bound("selected", "the number of elements that a mask selects", 0)
    if not room:
        return NotImplemented
    x, chosen = (each.flatten() for each in torch.broadcast_tensors(input, mask))
    place = chosen.cumsum(0) - 1
    where = torch.where(chosen & (place < room), place, room)
    return x.new_zeros(room + 1).index_copy(0, where, x)[:room]
