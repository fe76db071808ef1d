"""Attention: the function, the module with its options, patterns around it, and Transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .example import Example, model

BATCH, HEADS, TIME, WIDTH = 2, 4, 6, 32


def heads() -> tuple[Tensor, ...]:
    """Return query, key and value, each ``[batch, heads, time, width of a head]``."""
    return tuple(torch.randn(BATCH, HEADS, TIME, WIDTH // HEADS) for _ in range(3))


def sequence(time: int = TIME, *, batch_first: bool = False, width: int = WIDTH) -> Tensor:
    return torch.randn(BATCH, time, width) if batch_first else torch.randn(time, BATCH, width)


class Dropped(nn.Module):
    """Attention whose weights are dropped out in training."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        dropout = 0.1 if self.training else 0.0
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)


class Attention(nn.Module):
    """``nn.MultiheadAttention`` from a query to a context, with masks; the default context is the query."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, **options)

    def forward(self, query: Tensor, context: Tensor | None = None, **masks: Tensor) -> tuple[Tensor, Tensor]:
        context = query if context is None else context
        return self.attention(query, context, context, **masks)


class Padded(Attention):
    """Attention with a mask that leaves out keys that are padding."""

    def forward(self, query: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(query, key_padding_mask=padding)


class Masked(Attention):
    """Attention with a mask of pairs of positions."""

    def forward(self, query: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(query, attn_mask=mask)


class Wide(nn.Module):
    """Attention whose keys and values have other widths than the queries."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, kdim=24, vdim=16)

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(query, key, value)


class Pattern(nn.Module):
    """Attention as networks use it, with optional normalization before, and projection and residual after."""

    def __init__(self, *, normalize: bool = False, project: bool = False, residual: bool = False) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH) if normalize else nn.Identity()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.projection = nn.Linear(WIDTH, 16) if project else nn.Identity()
        self.residual = residual

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        y = self.projection(self.attention(y, y, y, need_weights=False)[0])
        return x + y if self.residual else y


OPTIONS: dict[str, Any] = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 48, "dropout": 0.0}


@model
def scaled_dot_product_attention() -> Example:
    """Basic SDPA"""
    return Example(F.scaled_dot_product_attention, heads())


@model
def sdpa_causal() -> Example:
    """Causal masking"""
    return Example(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), heads())


@model
def sdpa_dropout() -> Example:
    """With dropout"""
    return Example(Dropped(), heads())


@model
def sdpa_mask() -> Example:
    """Explicit attention mask"""
    mask = torch.rand(TIME, TIME) < 0.7
    return Example(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), (*heads(), mask))


@model
def sdpa_scale() -> Example:
    """Custom scale factor"""
    return Example(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.5), heads())


@model
def multihead_attention() -> Example:
    """Basic MHA (time first)"""
    return Example(Attention(), (sequence(),))


@model
def mha_batch_first() -> Example:
    """Batch-first layout"""
    return Example(Attention(batch_first=True), (sequence(batch_first=True),))


@model
def mha_key_padding_mask() -> Example:
    """Key padding mask"""
    return Example(Padded(), (sequence(), torch.tensor([[False] * 6, [False] * 4 + [True] * 2])))


@model
def mha_attn_mask() -> Example:
    """Attention mask"""
    return Example(Masked(), (sequence(), torch.ones(TIME, TIME, dtype=torch.bool).triu(1)))


@model
def mha_dropout() -> Example:
    """With dropout"""
    return Example(Attention(dropout=0.1), (sequence(),))


@model
def mha_no_bias() -> Example:
    """Without bias"""
    return Example(Attention(bias=False), (sequence(),))


@model
def mha_add_bias_kv() -> Example:
    """Bias to key/value"""
    return Example(Attention(add_bias_kv=True), (sequence(),))


@model
def mha_add_zero_attn() -> Example:
    """Zero attention"""
    return Example(Attention(add_zero_attn=True), (sequence(),))


@model
def mha_kdim_vdim() -> Example:
    """Different key/value dimensions"""
    return Example(Wide(), (sequence(), sequence(8, width=24), sequence(8, width=16)))


@model
def self_attention() -> Example:
    """Self-attention pattern"""
    return Example(Pattern(), (sequence(batch_first=True),))


@model
def cross_attention() -> Example:
    """Cross-attention pattern"""
    return Example(Attention(batch_first=True), (sequence(batch_first=True), sequence(9, batch_first=True)))


@model
def attention_with_projection() -> Example:
    """Attention + linear"""
    return Example(Pattern(project=True), (sequence(batch_first=True),))


@model
def attention_with_layernorm() -> Example:
    """Pre-norm attention"""
    return Example(Pattern(normalize=True), (sequence(batch_first=True),))


@model
def attention_with_residual() -> Example:
    """Attention + skip connection"""
    return Example(Pattern(residual=True), (sequence(batch_first=True),))


@model
def transformer_encoder_layer() -> Example:
    """Single encoder layer"""
    return Example(nn.TransformerEncoderLayer(**OPTIONS), (sequence(),))


@model
def transformer_encoder_layer_batch_first() -> Example:
    """Batch-first encoder"""
    layer = nn.TransformerEncoderLayer(**OPTIONS, batch_first=True)
    return Example(layer, (sequence(batch_first=True),))


@model
def transformer_decoder_layer() -> Example:
    """Single decoder layer"""
    return Example(nn.TransformerDecoderLayer(**OPTIONS), (sequence(), sequence(8)))


@model
def transformer_encoder() -> Example:
    """Stacked encoder"""
    layer = nn.TransformerEncoderLayer(**OPTIONS)
    return Example(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (sequence(),))


@model
def transformer_decoder() -> Example:
    """Stacked decoder"""
    layers = nn.TransformerDecoder(nn.TransformerDecoderLayer(**OPTIONS), 2)
    return Example(layers, (sequence(), sequence(8)))


@model
def transformer() -> Example:
    """Full encoder-decoder model"""
    whole = nn.Transformer(**OPTIONS, num_encoder_layers=1, num_decoder_layers=1)
    return Example(whole, (sequence(), sequence(8)))
