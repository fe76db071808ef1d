"""Whole networks to verify, measure and show: random weights, no downloads, dropout 0.

Each factory returns ``(model, args)`` with the model in evaluation mode. Networks that
need the ``models`` extra come from Hugging Face transformers and are built from a
configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from ...errors import MissingExtra

Factory = Callable[[], tuple[nn.Module, tuple[Any, ...]]]


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    """Three linear layers on ``[32, 64]``."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 10))
    return model.eval(), (torch.randn(32, 64),)


def cnn() -> tuple[nn.Module, tuple[Any, ...]]:
    """Two convolutions with batch norm and pooling, on ``[8, 1, 28, 28]``."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 10),
    )
    return model.eval(), (torch.randn(8, 1, 28, 28),)


def resnet18(size: int = 96) -> tuple[nn.Module, tuple[Any, ...]]:
    """ResNet-18 as an image classifier on ``[2, 3, size, size]``."""
    transformers = transformers_or_missing()
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        num_labels=10,
    )
    return transformers.ResNetForImageClassification(config).eval(), (torch.randn(2, 3, size, size),)


def bert(layers: int = 4, width: int = 512) -> tuple[nn.Module, tuple[Any, ...]]:
    """BERT's encoder on token ids ``[2, 64]``."""
    transformers = transformers_or_missing()
    torch.manual_seed(0)
    config = transformers.BertConfig(**_encoder(layers, width))
    return transformers.BertModel(config).eval(), (torch.randint(0, config.vocab_size, (2, 64)),)


def gpt2(layers: int = 4, width: int = 256) -> tuple[nn.Module, tuple[Any, ...]]:
    """GPT-2 as a language model on token ids ``[2, 64]``."""
    transformers = transformers_or_missing()
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=width,
        n_layer=layers,
        n_head=width // 64,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,
    )
    return transformers.GPT2LMHeadModel(config).eval(), (torch.randint(0, config.vocab_size, (2, 64)),)


def vit(layers: int = 4, width: int = 192) -> tuple[nn.Module, tuple[Any, ...]]:
    """ViT as an image classifier on ``[2, 3, 96, 96]``."""
    transformers = transformers_or_missing()
    torch.manual_seed(0)
    config = transformers.ViTConfig(image_size=96, num_labels=10, **_encoder(layers, width))
    return transformers.ViTForImageClassification(config).eval(), (torch.randn(2, 3, 96, 96),)


NETWORKS: dict[str, Factory] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet18,
    "bert": bert,
    "gpt2": gpt2,
    "vit": vit,
}
"""The whole networks by name."""


def transformers_or_missing() -> Any:
    """Import Hugging Face transformers; raises :class:`MissingExtra` if it is not installed."""
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("this model needs Hugging Face transformers", extra="models") from error
    return transformers


def _encoder(layers: int, width: int) -> dict[str, Any]:
    """Return the settings of an encoder with heads of width 64 and without dropout."""
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 64,
        "intermediate_size": 4 * width,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
