"""Capture rules for one-hot vectors."""

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
