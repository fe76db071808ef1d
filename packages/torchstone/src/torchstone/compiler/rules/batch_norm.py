"""The capture rule for batch norm with a cumulative average: PyTorch reads its factor as a Python number."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from ...torch_internals.tensors import check_batch_norm_input
from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(torch.nn.BatchNorm1d, torch.nn.BatchNorm2d, torch.nn.BatchNorm3d)
def batch_norm(module: Any) -> Any:
    """For ``momentum=None``, return a copy that shares the weights and computes the factor as a tensor."""
    if module.momentum is not None or not module.track_running_stats:
        return module
    twin = copy.copy(module)
    twin.forward = partial(_forward, twin)
    return twin


def _forward(norm: Any, input: Tensor) -> Tensor:
    """Normalize by the batch, and update the running statistics to the means over all batches so far."""
    if not norm.training:
        return type(norm).forward(norm, input)
    check_batch_norm_input(norm, input)
    norm.num_batches_tracked.add_(1)
    axes = [0, *range(2, input.ndim)]
    variance, mean = torch.var_mean(input.detach().to(norm.running_mean.dtype), axes, correction=1)
    share = 1.0 / norm.num_batches_tracked
    norm.running_mean.copy_(share * mean + (1 - share) * norm.running_mean)
    norm.running_var.copy_(share * variance + (1 - share) * norm.running_var)
    return F.batch_norm(input, None, None, norm.weight, norm.bias, True, 0.0, norm.eps)
