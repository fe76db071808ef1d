"""Embeddings, bags of embeddings, one-hot vectors, and embeddings as networks use them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .example import Example, model

VOCABULARY, WIDTH, BATCH, TIME = 20, 8, 3, 5


def tokens() -> Tensor:
    return torch.randint(VOCABULARY, (BATCH, TIME))


def padded_tokens() -> Tensor:
    return torch.tensor([[3, 7, 0, 0, 0], [1, 2, 9, 4, 0], [5, 5, 6, 19, 0]])


def table(**options: Any) -> nn.Embedding:
    return nn.Embedding(VOCABULARY, WIDTH, **options)


def bags(flat: int = 9) -> tuple[Tensor, Tensor]:
    """Return indices, and the offsets of three bags, of which the second is empty."""
    return torch.randint(VOCABULARY, (flat,)), torch.tensor([0, 4, 4])


class Weighted(nn.Module):
    """An embedding bag with a weight for each member."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(VOCABULARY, WIDTH, mode="sum")

    def forward(self, indices: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
        return self.bag(indices, offsets, per_sample_weights=weights)


class Positional(nn.Module):
    """The sum of token and position embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = table(), nn.Embedding(TIME, WIDTH)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))


class Summed(Positional):
    """Token, segment and position embeddings, added and normalized, as in BERT."""

    def __init__(self) -> None:
        super().__init__()
        self.segments, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:  # type: ignore[override]
        return self.norm(super().forward(tokens) + self.segments(segments))


@model
def embedding() -> Example:
    """Basic nn.Embedding"""
    return Example(table(), (tokens(),))


@model
def embedding_with_padding() -> Example:
    """With padding_idx"""
    return Example(table(padding_idx=0), (padded_tokens(),))


@model
def embedding_with_max_norm() -> Example:
    """With max_norm constraint"""
    return Example(table(max_norm=1.0), (tokens(),))


@model
def embedding_with_norm_type() -> Example:
    """Custom p-norm"""
    return Example(table(max_norm=1.0, norm_type=1.0), (tokens(),))


@model
def embedding_scale_grad() -> Example:
    """Frequency-scaled gradients"""
    return Example(table(scale_grad_by_freq=True), (padded_tokens(),))


@model
def embedding_sparse() -> Example:
    """Sparse gradients"""
    build = "aten._sparse_coo_tensor_with_dims_and_tensors.default"
    return Example(table(sparse=True), (tokens(),), in_eager=(build,))


@model
def embedding_functional() -> Example:
    """F.embedding API"""
    return Example(F.embedding, (tokens(), torch.randn(VOCABULARY, WIDTH)))


@model
def embedding_bag_sum() -> Example:
    """Sum pooling"""
    return Example(nn.EmbeddingBag(VOCABULARY, WIDTH, mode="sum"), bags())


@model
def embedding_bag_mean() -> Example:
    """Mean pooling"""
    return Example(nn.EmbeddingBag(VOCABULARY, WIDTH, mode="mean"), bags())


@model
def embedding_bag_max() -> Example:
    """Max pooling"""
    return Example(nn.EmbeddingBag(VOCABULARY, WIDTH, mode="max"), bags())


@model
def embedding_bag_with_weights() -> Example:
    """Per-sample weights"""
    return Example(Weighted(), (*bags(), torch.rand(9)))


@model
def embedding_bag_padding() -> Example:
    """With padding_idx"""
    return Example(nn.EmbeddingBag(VOCABULARY, WIDTH, mode="mean", padding_idx=0), (padded_tokens(),))


@model
def embedding_bag_sparse() -> Example:
    """Sparse gradients"""
    bag = nn.EmbeddingBag(VOCABULARY, WIDTH, mode="sum", sparse=True)
    return Example(bag, bags(), in_eager=("aten._embedding_bag_backward.default",))


@model
def embedding_bag_last_offset() -> Example:
    """include_last_offset=True"""
    bag = nn.EmbeddingBag(VOCABULARY, WIDTH, mode="sum", include_last_offset=True)
    return Example(bag, (bags()[0], torch.tensor([0, 4, 9])))


@model
def one_hot() -> Example:
    """Fixed num_classes"""
    return Example(lambda x: F.one_hot(x, VOCABULARY), (tokens(),), trains=False)


@model
def one_hot_dynamic() -> Example:
    """Auto-detect num_classes"""

    def categories(tokens: Tensor) -> tuple[Tensor, Tensor]:
        return F.one_hot(tokens), tokens.max() + 1

    return Example(categories, (tokens(),), trains=False, ruled=True, bounds={"classes": VOCABULARY})


@model
def embedding_with_projection() -> Example:
    """Embedding → Linear"""
    return Example(nn.Sequential(table(), nn.Linear(WIDTH, 6)), (tokens(),))


@model
def embedding_with_dropout() -> Example:
    """Embedding → Dropout"""
    return Example(nn.Sequential(table(), nn.Dropout(0.1)), (tokens(),))


@model
def embedding_with_layernorm() -> Example:
    """Embedding → LayerNorm"""
    return Example(nn.Sequential(table(), nn.LayerNorm(WIDTH)), (tokens(),))


@model
def positional_embedding() -> Example:
    """Token + Position embeddings"""
    return Example(Positional(), (tokens(),))


@model
def embedding_sum_2d() -> Example:
    """Token + Segment + Position (BERT-style)"""
    return Example(Summed(), (tokens(), torch.randint(2, (BATCH, TIME))))
