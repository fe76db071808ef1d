"""Models with a batch or a sequence of any length: one program, run at several sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from .attention import OPTIONS, WIDTH
from .example import Example, model

SIZES = (2, 1, 3, 7)


def batched(function: Any, *shape: int, others: tuple[Tensor, ...] = ()) -> Example:
    """Make an example of ``function`` on ``[batch, *shape]`` at every size; ``others`` keep their shapes."""
    batch = Dim("batch", min=1, max=4096)
    inputs = [(torch.randn(size, *shape), *others) for size in SIZES]
    return Example(function, inputs[0], ({0: batch}, *(None for _ in others)), tuple(inputs[1:]))


def in_time(function: Any, width: int = WIDTH) -> Example:
    """Make an example of ``function`` on ``[batch, time, width]``, with batch and time of every size."""
    batch, time = Dim("batch", min=1, max=4096), Dim("time", min=1, max=4096)
    inputs = [(torch.randn(size, size + 3, width),) for size in SIZES]
    return Example(function, inputs[0], ({0: batch, 1: time},), tuple(inputs[1:]))


@model
def dynamic_batch_mlp() -> Example:
    """MLP with variable batch size"""
    return batched(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)), 8)


@model
def dynamic_batch_conv() -> Example:
    """Conv2d with variable batch"""
    return batched(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU()), 3, 8, 8)


@model
def dynamic_seq_transformer() -> Example:
    """Transformer with variable sequence"""
    return in_time(nn.TransformerEncoderLayer(**OPTIONS, batch_first=True))


@model
def dynamic_reshape() -> Example:
    """Reshape preserving batch dim"""
    return batched(lambda x: x.reshape(x.shape[0], -1), 3, 4)


@model
def dynamic_matmul() -> Example:
    """Batched matmul"""
    batch = Dim("batch", min=1, max=4096)
    inputs = [(torch.randn(size, 3, 4), torch.randn(size, 4, 5)) for size in SIZES]
    return Example(torch.matmul, inputs[0], ({0: batch}, {0: batch}), tuple(inputs[1:]))


@model
def dynamic_reduction() -> Example:
    """Reduction preserving batch"""
    return batched(lambda x: (x.sum(-1), x.mean(1), x.amax(-1)), 3, 4)


@model
def dynamic_broadcast() -> Example:
    """Broadcasting with dynamic batch"""
    return batched(torch.add, 3, 4, others=(torch.randn(4),))


@model
def dynamic_transpose() -> Example:
    """Transpose with dimension remapping"""
    return in_time(lambda x: x.transpose(0, 1) * 2, 5)


@model
def dynamic_slice() -> Example:
    """Narrow with dynamic batch"""
    return batched(lambda x: x.narrow(1, 2, 3), 8)


@model
def dynamic_select() -> Example:
    """Select with dynamic batch"""
    return batched(lambda x: x.select(1, 2), 5, 4)


@model
def dynamic_pad() -> Example:
    """Padding with dynamic batch"""
    return batched(lambda x: nn.functional.pad(x, (1, 2)), 5)


@model
def dynamic_gather() -> Example:
    """Gather with dynamic batch"""
    batch = Dim("batch", min=1, max=4096)
    inputs = [(torch.randn(size, 6), torch.randint(6, (size, 3))) for size in SIZES]
    return Example(lambda x, i: x.gather(1, i), inputs[0], ({0: batch}, {0: batch}), tuple(inputs[1:]))


@model
def dynamic_expand() -> Example:
    """Expand/broadcast with dynamic batch"""
    return batched(lambda x: x.expand(x.shape[0], 4, 5), 1, 5)


@model
def dynamic_index_select() -> Example:
    """Index select with dynamic batch"""
    return batched(lambda x, i: x.index_select(1, i), 6, others=(torch.tensor([0, 5, 2]),))
