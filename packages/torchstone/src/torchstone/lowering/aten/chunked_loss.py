"""``linear_cross_entropy`` in chunks: decomposed to a linear layer and a cross entropy.

Chunks save memory in eager PyTorch; what they compute is the same. The operators that
compute gradients along with the loss (for training) are not here.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.nn import functional as F

from ..registry import decomposes

Tensor = torch.Tensor


def in_one_piece(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    *chunks: Any,
) -> Any:
    """The loss, and nothing in the place of the gradients, which are not asked for."""
    if any(chunks[-3:]):
        return NotImplemented
    loss = F.cross_entropy(
        F.linear(input, linear_weight, linear_bias),
        target,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    return loss, *(input.new_empty(shape) for shape in ((0, 0), (0, 0), (0,)))


def without_reduction(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    *_: Any,
) -> Tensor:
    """The loss of each sample."""
    logits = F.linear(input, linear_weight, linear_bias)
    return F.cross_entropy(logits, target, weight, reduction="none", ignore_index=ignore_index)


def _register() -> None:
    """They are custom operators of a module that PyTorch has since 2.13."""
    try:
        module: Any = importlib.import_module("torch.nn.modules.linear_cross_entropy")
    except ModuleNotFoundError:
        return
    decomposes(module._linear_cross_entropy_batch_chunked._opoverload)(in_one_piece)
    decomposes(module._linear_cross_entropy_batch_chunked_no_reduction._opoverload)(without_reduction)


_register()
