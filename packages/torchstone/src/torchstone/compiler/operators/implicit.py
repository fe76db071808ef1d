"""Expansions of Torchstone's operators for functions for which PyTorch has no operator.

PyTorch traces ``multi_head_attention_forward``, packing and some losses as the operators
that they call, and it has no ``masked_select`` with a given size. During an export, capture
rules call Torchstone's operators instead, which are not expanded and become composites.
Everywhere else, each operator behaves like the function that it is named after: eager PyTorch
runs the expansion, and autograd and AOTAutograd see only the expansion.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from ..assertions import require
from .declaring import implicit

Tensor = torch.Tensor


@implicit
def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    q_proj_weight: Tensor | None,
    k_proj_weight: Tensor | None,
    v_proj_weight: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
    add_zero_attn: bool,
    need_weights: bool,
    average_attn_weights: bool,
    is_causal: bool,
) -> list[Tensor]:
    """``F.multi_head_attention_forward`` without dropout: the output, and the weights if requested."""
    output, weights = F.multi_head_attention_forward(
        query,
        key,
        value,
        query.shape[-1],
        num_heads,
        in_proj_weight,
        in_proj_bias,
        bias_k,
        bias_v,
        add_zero_attn,
        0.0,
        out_proj_weight,
        out_proj_bias,
        training=False,
        key_padding_mask=key_padding_mask,
        need_weights=need_weights,
        attn_mask=attn_mask,
        use_separate_proj_weight=in_proj_weight is None,
        q_proj_weight=q_proj_weight,
        k_proj_weight=k_proj_weight,
        v_proj_weight=v_proj_weight,
        average_attn_weights=average_attn_weights,
        is_causal=is_causal,
    )
    return [output] if weights is None else [output, weights]


@implicit
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool, eps: float, reduction: str
) -> Tensor:
    """Compute PyTorch's formula without its error for negative variances, which count as ``eps``.

    Raises :class:`ValueError` for an unknown ``reduction``, or if ``var`` has neither the input's
    shape, nor that shape without its last axis, nor that shape with one axis of size 1.
    """
    if var.shape != input.shape:
        differing = [
            (mine, theirs) for mine, theirs in zip(input.shape, var.shape, strict=False) if mine != theirs
        ]
        if input.shape[:-1] == var.shape:
            var = var.unsqueeze(-1)
        elif input.ndim != var.ndim or [theirs for _, theirs in differing] != [1]:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    require(lambda: var >= 0, "var has negative entry/entries")
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss.mean() if reduction == "mean" else loss.sum() if reduction == "sum" else loss


@implicit
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str
) -> Tensor:
    """``F.multilabel_soft_margin_loss``."""
    return F.multilabel_soft_margin_loss(input, target, weight, reduction=reduction)


@implicit
def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Return the rows of all sequences, step by step and then zeros, and how many sequences reach each step.

    ``input`` is ``[time, batch, …]`` (``[batch, time, …]``), ``lengths`` int64 ``[batch]`` in
    descending order; returns ``[time · batch, …]`` and int64 ``[time]``.
    """
    x = input.transpose(0, 1) if batch_first else input
    steps, batch = x.shape[:2]
    sizes = (torch.arange(steps)[:, None] < lengths).sum(1)
    _, rows = _rows(sizes, batch)
    room = x.new_zeros((steps * batch + 1, *x.shape[2:]))
    return room.index_copy(0, rows.flatten(), x.flatten(0, 1))[:-1], sizes


@implicit
def pad_packed_sequence(
    data: Tensor,
    batch_sizes: Tensor,
    batch: int,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Tensor, Tensor]:
    """Return the sequences of packed ``data``, padded to ``total_length`` steps or more, and the lengths."""
    there, rows = _rows(batch_sizes, batch)
    found = data[rows.clamp(max=data.shape[0] - 1)]
    filler = found.new_full((), padding_value)  # has the data's dtype
    padded = torch.where(there.reshape(*there.shape, *[1] * (found.ndim - 2)), found, filler)
    longer = total_length - padded.shape[0]
    if longer > 0:
        padded = torch.cat([padded, padded.new_full((longer, *padded.shape[1:]), padding_value)])
    return padded.transpose(0, 1) if batch_first else padded, there.sum(0)


def _rows(sizes: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Return a mask of which sequences each step has, and their rows (one past the last row if absent)."""
    steps = sizes.shape[0]
    member = torch.arange(batch)
    there = member < sizes[:, None]
    first = sizes.cumsum(0) - sizes
    return there, torch.where(there, first[:, None] + member, steps * batch)


@implicit
def masked_select(self: Tensor, mask: Tensor, size: int) -> Tensor:
    """Return the first ``size`` elements that ``mask`` selects, then zeros; both tensors are broadcast."""
    x, chosen = torch.broadcast_tensors(self, mask)
    return selected_rows(x.flatten(), chosen.flatten(), size)


def selected_rows(rows: Tensor, chosen: Tensor, size: int) -> Tensor:
    """Return the rows that the 1-d mask ``chosen`` selects, truncated or zero-padded to ``size``."""
    place = chosen.cumsum(0) - 1
    where = torch.where(chosen & (place < size), place, size)
    return rows.new_zeros((size + 1, *rows.shape[1:])).index_copy(0, where, rows)[:size]
