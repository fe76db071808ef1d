"""Capture rules that call Torchstone's operators for losses for which PyTorch has no operator."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ...lowering.own import own
from ..assertions import require
from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(F.gaussian_nll_loss, of=[own.gaussian_nll_loss], in_dynamo=True)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Treat negative variances in a tensor as ``eps``; PyTorch reads the values and raises."""
    if not isinstance(var, Tensor):
        if var < 0:
            raise ValueError("var has negative entry/entries")
        var = var * torch.ones_like(input)
    require(lambda: var >= 0, "var has negative entry/entries")
    loss: Tensor = own.gaussian_nll_loss(input, target, var, full, eps, reduction)
    return loss


@capture_rule(F.multilabel_soft_margin_loss, of=[own.multilabel_soft_margin_loss])
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Call a single operator; with the deprecated parameters, PyTorch's function is traced."""
    if size_average is not None or reduce is not None:
        return NotImplemented
    loss: Tensor = own.multilabel_soft_margin_loss(input, target, weight, reduction)
    return loss
