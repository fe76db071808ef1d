"""Capture rules for splits that PyTorch traces as copies, though they return views."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..operators.mending import unsafe_split, unsafe_split_with_sizes
from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(torch.unsafe_split, torch.Tensor.unsafe_split)
def split(self: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts that share the tensor's memory, so that a write into one is a write into the tensor."""
    return unsafe_split(self, split_size, dim)


@capture_rule(torch.unsafe_split_with_sizes, torch.Tensor.unsafe_split_with_sizes)
def split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the given sizes, as above."""
    return unsafe_split_with_sizes(self, split_sizes, dim)
