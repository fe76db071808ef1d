"""Capture rules for losses whose Python code looks at values."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(F.gaussian_nll_loss)
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """PyTorch's own formula without its error for negative variances: they count as ``eps``."""
    if not isinstance(var, Tensor):
        var = torch.full_like(input, var)
    elif var.shape != input.shape:
        differing = [
            (mine, theirs) for mine, theirs in zip(input.shape, var.shape, strict=False) if mine != theirs
        ]
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.ndim != var.ndim or [theirs for _, theirs in differing] != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss
