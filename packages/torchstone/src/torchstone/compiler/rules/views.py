"""Capture rules for splits that PyTorch traces as copies, though they share memory with their input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..operators.mending import equal_sizes, ranges
from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(torch.unsafe_split, torch.Tensor.unsafe_split)
def unsafe_split(self: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Return views, so that a write into a part is a write into the tensor."""
    return ranges(self, equal_sizes(self, split_size, dim), dim)


@capture_rule(torch.unsafe_split_with_sizes, torch.Tensor.unsafe_split_with_sizes)
def unsafe_split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Return views of the given sizes, so that a write into a part is a write into the tensor."""
    return ranges(self, split_sizes, dim)
