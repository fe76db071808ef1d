"""Decomposes ``linear_cross_entropy`` in chunks into a linear layer and a cross entropy.

Chunks save memory in eager PyTorch and compute the same result. In training, the
operator returns the gradients along with the loss.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch
from torch.nn import functional as F

from ...lowering import decomposes
from ...torch_internals.operators import overload_of_custom_operator

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
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    *wanted: bool,
) -> Any:
    """Return the loss and the requested gradients of input, weight and bias.

    All are computed in ``acc_dtype``, since rounded logits would change the loss.
    """
    if any(wanted) and label_smoothing:
        return NotImplemented
    dtype = input.dtype
    input, linear_weight, linear_bias, weight = _all_to(acc_dtype, input, linear_weight, linear_bias, weight)
    logits = F.linear(input, linear_weight, linear_bias)
    loss = F.cross_entropy(
        logits,
        target,
        weight,
        reduction=reduction,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
    )
    gradients = [input.new_empty(shape) for shape in ((0, 0), (0, 0), (0,))]
    if any(wanted):
        slopes = _slopes(logits, target, weight, reduction, ignore_index)
        makers = (lambda: slopes @ linear_weight, lambda: slopes.T @ input, lambda: slopes.sum(0))
        for place in (place for place, asked in enumerate(wanted) if asked):
            gradients[place] = makers[place]()
    return tuple(one.to(dtype) for one in (loss, *gradients))


def _all_to(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    return [None if one is None else one.to(dtype) for one in tensors]


def _slopes(
    logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str, ignore_index: int
) -> Tensor:
    """Return the gradient of the mean or summed loss for the logits, both of shape ``(samples, classes)``."""
    counts = target != ignore_index
    target = torch.where(counts, target, 0)
    shares = counts.to(logits.dtype) if weight is None else torch.where(counts, weight[target], 0)
    if reduction == "mean":
        total = shares.sum()
        shares = shares / torch.where(total == 0, torch.nan, total)
    classes = torch.arange(logits.shape[1], device=logits.device)
    return (torch.softmax(logits, 1) - (target[:, None] == classes).to(logits.dtype)) * shares[:, None]


def without_reduction(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    """Return the loss of each sample, computed as in :func:`in_one_piece`."""
    dtype = input.dtype
    input, linear_weight, linear_bias, weight = _all_to(acc_dtype, input, linear_weight, linear_bias, weight)
    logits = F.linear(input, linear_weight, linear_bias)
    return F.cross_entropy(logits, target, weight, reduction="none", ignore_index=ignore_index).to(dtype)


def _register() -> None:
    """Register the decompositions of the custom operators, which PyTorch has since 2.13."""
    try:
        module: Any = importlib.import_module("torch.nn.modules.linear_cross_entropy")
    except ModuleNotFoundError:
        return
    decomposes(overload_of_custom_operator(module._linear_cross_entropy_batch_chunked))(in_one_piece)
    decomposes(overload_of_custom_operator(module._linear_cross_entropy_batch_chunked_no_reduction))(
        without_reduction
    )


_register()
