"""Decompositions of the operators that ``nn.MultiheadAttention`` and ``nn.TransformerEncoderLayer`` call in
evaluation, and of the derivative that ``weight_norm`` calls.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from ...lowering import decomposes
from ...torch_internals.operators import namespace

aten = namespace("aten")
Tensor = torch.Tensor

_PADDING = 1
"""The kind of mask that has shape ``[N, L]``; others broadcast to the scores, ``[N, H, L, L]``."""


@decomposes(aten._native_multi_head_attention.default)
def native_multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Return the attention, ``[N, L, E]``, and its weights. Scores where ``mask`` is True are left out."""
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    q, k, v = (
        F.linear(one, weight, bias).unflatten(-1, (num_head, -1)).transpose(1, 2)
        for one, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    scores = (q * (embed_dim // num_head) ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        left_out = mask.to(torch.bool)
        if mask_type == _PADDING:
            left_out = left_out[:, None, None, :]
        scores = scores.masked_fill(left_out, -torch.inf)
    shares = scores.softmax(-1)
    attended = F.linear((shares @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return attended, None
    return attended, shares.mean(1) if average_attn_weights else shares


@decomposes(aten._transformer_encoder_layer_fwd.default)
def transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Return attention and two linear layers, each with a residual and a layer norm, as ``[N, L, E]``."""

    def attention(x: Tensor) -> Tensor:
        weights = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return native_multi_head_attention(
            x, x, x, embed_dim, num_heads, *weights, mask, need_weights=False, mask_type=mask_type
        )[0]

    def feed_forward(x: Tensor) -> Tensor:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else inner.relu(), ffn_weight_2, ffn_bias_2)

    def norm_1(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def norm_2(x: Tensor) -> Tensor:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attention(norm_1(src))
        return x + feed_forward(norm_2(x))
    x = norm_1(src + attention(src))
    return norm_2(x + feed_forward(x))


@decomposes(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``v`` and ``g``, as in aten/src/ATen/native/WeightNorm.cpp."""
    others = [axis for axis in range(saved_v.dim()) if axis != dim]
    norms = saved_norms.to(saved_g.dtype)
    along = (grad_w * saved_v).sum(others, keepdim=True)
    return (saved_g / norms) * (grad_w - saved_v * (along / (norms * norms))), along / norms
