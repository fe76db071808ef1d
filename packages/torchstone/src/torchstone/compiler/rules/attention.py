"""Capture rules for multi-head attention, which PyTorch would trace as many operators, and for its masks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...lowering.own import own
from ...torch_internals.tensors import DETECT_CAUSAL_MASK, detect_causal_mask
from .registry import capture_rule

Tensor = torch.Tensor


@capture_rule(F.multi_head_attention_forward, of=[own.multi_head_attention])
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Call a single operator; with dropout or static keys and values, PyTorch's function is traced."""
    if (training and dropout_p) or static_k is not None or static_v is not None:
        return NotImplemented
    if embed_dim_to_check != query.shape[-1]:
        return NotImplemented  # PyTorch's own error
    output, *weights = own.multi_head_attention(
        query,
        key,
        value,
        None if use_separate_proj_weight else in_proj_weight,
        in_proj_bias,
        q_proj_weight,
        k_proj_weight,
        v_proj_weight,
        bias_k,
        bias_v,
        out_proj_weight,
        out_proj_bias,
        key_padding_mask,
        attn_mask,
        num_heads,
        add_zero_attn,
        need_weights,
        average_attn_weights,
        is_causal,
    )
    return output, weights[0] if weights else None


@capture_rule(detect_causal_mask, in_dynamo=True)
@capture_rule(DETECT_CAUSAL_MASK)
def causal_mask(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    """Whether the caller says that the mask is causal. PyTorch would read the values of the mask."""
    return is_causal is True
