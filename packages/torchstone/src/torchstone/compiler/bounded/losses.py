"""Rules for losses: padding adds nothing to their sums, and does not count in their means."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .calls import called, is_operator, rule
from .sizes import NoForm, Trace

_SUM, _MEAN = 2, 1
"""Values of ATen's argument ``reduction``. With 0, all losses are returned."""
_BY_ROWS = ("multi_margin_loss", "triplet_margin_loss", "cosine_embedding_loss")
"""Losses with one number for each row. The others have one for each element."""


@rule(
    "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss kl_div poisson_nll_loss "
    "binary_cross_entropy binary_cross_entropy_with_logits margin_ranking_loss hinge_embedding_loss "
    "multi_margin_loss triplet_margin_loss cosine_embedding_loss"
)
def loss(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    by_rows = any(is_operator(node, name) for name in _BY_ROWS)
    padded = [one for one in node.all_input_nodes if trace.dims(one)]
    if by_rows and any(trace.dims(one).keys() - {0} for one in padded):
        raise NoForm("its rows have sizes that depend on values")
    whole = {"target": trace.filled(given["target"], 0)} if is_operator(node, "multi_margin_loss") else {}
    if given["reduction"] not in (_SUM, _MEAN) or not padded:
        return called(trace, node, **whole)
    found = called(trace, node, reduction=0, **whole)
    inside: list[Any] = [trace.real(one) for one in padded]
    real = functools.reduce(operator.and_, (one.flatten() if by_rows else one for one in inside))
    real = real.expand(found.shape)
    wide = torch.promote_types(found.dtype, torch.float32)
    total = torch.where(real, found, torch.scalar_tensor(0, dtype=found.dtype)).to(wide).sum()
    return (total if given["reduction"] == _SUM else total / real.sum()).to(found.dtype)


@rule("nll_loss_forward nll_loss2d_forward cross_entropy_loss")
def of_classes(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    """Give padding the class ``ignore_index``, which the loss ignores."""
    source, target = given["self"], given["target"]
    if target.meta["val"].is_floating_point():
        raise NoForm("it takes probabilities of classes")
    if source.meta["val"].ndim < 2 or 1 in trace.dims(source):
        raise NoForm("it takes a number of classes or a single row that depends on values")
    return called(trace, node, target=trace.filled(target, given["ignore_index"]))
