"""Networks of many families, small enough for a run over all of them.

Each factory takes a batch size and returns ``(model, inputs)``: random weights, no downloads, dropout 0.
Models of Hugging Face transformers are built from a configuration.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .networks import transformers_or_missing

Case = tuple[nn.Module, tuple[Any, ...]]


class Sequences(nn.Module):
    """A recurrent network whose last step is classified."""

    def __init__(self, kind: Callable[..., nn.RNNBase], width: int, layers: int) -> None:
        super().__init__()
        self.recurrent = kind(width, width, num_layers=layers, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


def lstm(batch: int) -> Case:
    """Two layers of 128 over 64 steps."""
    return Sequences(nn.LSTM, 128, 2), (torch.randn(batch, 64, 128),)


def gru(batch: int) -> Case:
    """Two layers of 128 over 64 steps."""
    return Sequences(nn.GRU, 128, 2), (torch.randn(batch, 64, 128),)


def autoencoder(batch: int) -> Case:
    """An autoencoder from 784 values to 32 and back."""
    widths = [784, 512, 128, 32, 128, 512, 784]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Sigmoid()), (torch.rand(batch, 784),)


def transformer(batch: int) -> Case:
    """Two of PyTorch's own encoder layers, 256 wide, over 64 steps."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(batch, 64, 256),)


def _twice(inner: int, outer: int) -> nn.Sequential:
    """Two 3 × 3 convolutions with batch norm."""
    layers: list[nn.Module] = []
    for channels in (inner, outer):
        layers += [nn.Conv2d(channels, outer, 3, padding=1), nn.BatchNorm2d(outer), nn.ReLU()]
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle = nn.ModuleList([_twice(3, 16), _twice(16, 32)]), _twice(32, 64)
        self.wider = nn.ModuleList([nn.ConvTranspose2d(64, 32, 2, 2), nn.ConvTranspose2d(32, 16, 2, 2)])
        self.up, self.head = nn.ModuleList([_twice(64, 32), _twice(32, 16)]), nn.Conv2d(16, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            kept.append(block(x))
            x = F.max_pool2d(kept[-1], 2)
        x = self.middle(x)
        for wider, block in zip(self.wider, self.up, strict=True):
            x = block(torch.cat([wider(x), kept.pop()], 1))
        return self.head(x)


def unet(batch: int) -> Case:
    """A U-Net with two levels on images of 64 × 64."""
    return _UNet(), (torch.randn(batch, 3, 64, 64),)


class _DiffusionBlock(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(8, channels) for _ in range(3)])
        self.convs = nn.ModuleList([nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2)])
        self.time = nn.Linear(128, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.convs[0](F.silu(self.norms[0](x))) + self.time(F.silu(time))[:, :, None, None]
        x = x + self.convs[1](F.silu(self.norms[1](h)))
        q, k, v = self.qkv(self.norms[2](x)).flatten(2).transpose(1, 2).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))


def diffusion(batch: int) -> Case:
    """One block of a diffusion U-Net with attention, 64 channels of 16 × 16."""
    return _DiffusionBlock(64), (torch.randn(batch, 64, 16, 16), torch.randn(batch, 128))


class _Graph(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.messages = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.own = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])

    def forward(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        for message, own in zip(self.messages, self.own, strict=True):
            gathered = torch.zeros_like(x).index_add(0, target, message(x)[source])
            x = F.relu(own(x) + gathered)
        return x


def graph(batch: int) -> Case:
    """A graph network: three rounds of messages over graphs of 128 nodes and 512 edges each."""
    nodes, edges = 128 * batch, 512 * batch
    ends = (torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,)))
    return _Graph(64, 3), (torch.randn(nodes, 64), *ends)


class _Dlrm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(10_000, 32, mode="sum") for _ in range(8)])
        self.bottom = nn.Sequential(nn.Linear(13, 128), nn.ReLU(), nn.Linear(128, 32))
        self.top = nn.Sequential(nn.Linear(32 + 36, 128), nn.ReLU(), nn.Linear(128, 1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        rows = torch.stack([x, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], 1)
        i, j = torch.triu_indices(9, 9, 1)
        return self.top(torch.cat([x, (rows @ rows.transpose(1, 2))[:, i, j]], 1))


def dlrm(batch: int) -> Case:
    """A recommendation model (DLRM): eight tables of 10,000 rows, and products of pairs of embeddings."""
    return _Dlrm(), (torch.randn(batch, 13), torch.randint(10_000, (batch, 8, 4)))


def _from_transformers(kind: str, model: str, **settings: Any) -> nn.Module:
    transformers = transformers_or_missing()
    configured = getattr(transformers, f"{kind}Config")(**settings)
    return getattr(transformers, f"{kind}{model}")(configured)


def _images(batch: int, size: int = 64) -> tuple[torch.Tensor]:
    return (torch.randn(batch, 3, size, size),)


def _tokens(batch: int, length: int = 64, vocabulary: int = 1000) -> tuple[torch.Tensor]:
    return (torch.randint(vocabulary, (batch, length)),)


def resnet50(batch: int) -> Case:
    model = _from_transformers("ResNet", "ForImageClassification", depths=[3, 4, 6, 3], num_labels=10)
    return model, _images(batch, 96)


def mobilenet(batch: int) -> Case:
    model = _from_transformers("MobileNetV2", "ForImageClassification", num_labels=10)
    return model, _images(batch, 96)


def efficientnet(batch: int) -> Case:
    model = _from_transformers(
        "EfficientNet",
        "ForImageClassification",
        width_coefficient=1.0,
        depth_coefficient=1.0,
        image_size=96,
        hidden_dim=1280,
        dropout_rate=0.0,
        drop_connect_rate=0.0,
        num_labels=10,
    )
    return model, _images(batch, 96)


def convnext(batch: int) -> Case:
    sizes = {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 4, 2]}
    return _from_transformers("ConvNext", "ForImageClassification", num_labels=10, **sizes), _images(batch)


def swin(batch: int) -> Case:
    model = _from_transformers(
        "Swin",
        "ForImageClassification",
        image_size=64,
        embed_dim=48,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        drop_path_rate=0.0,
        num_labels=10,
    )
    return model, _images(batch)


_TEXT = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8}


def llama(batch: int) -> Case:
    """Llama: a decoder with grouped queries and rotary embedding."""
    own = {"num_key_value_heads": 2, "intermediate_size": 688, "use_cache": False}
    return _from_transformers("Llama", "ForCausalLM", **_TEXT, **own), _tokens(batch)


def mixtral(batch: int) -> Case:
    """A mixture of four experts, two for each token."""
    own = {
        "num_key_value_heads": 2,
        "intermediate_size": 344,
        "num_local_experts": 4,
        "use_cache": False,
        "experts_implementation": "batched_mm",
    }
    return _from_transformers("Mixtral", "ForCausalLM", **_TEXT, **own), _tokens(batch)


def mamba(batch: int) -> Case:
    """A state space model in its sequential form."""
    own = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 2, "use_cache": False}
    return _from_transformers("Mamba", "ForCausalLM", **own), _tokens(batch, 32)


class _EncoderDecoder(nn.Module):
    def __init__(self, model: nn.Module, first: str) -> None:
        super().__init__()
        self.model, self.first = model, first

    def forward(self, x: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(**{self.first: x}, decoder_input_ids=tokens, use_cache=False).logits


def t5(batch: int) -> Case:
    own = {"vocab_size": 1000, "d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 8}
    model = _from_transformers("T5", "ForConditionalGeneration", dropout_rate=0.0, **own)
    return _EncoderDecoder(model, "input_ids"), (*_tokens(batch), *_tokens(batch, 32))


def whisper(batch: int) -> Case:
    layers = {f"{part}_layers": 2 for part in ("encoder", "decoder")}
    heads = {f"{part}_attention_heads": 4 for part in ("encoder", "decoder")}
    widths = {f"{part}_ffn_dim": 512 for part in ("encoder", "decoder")}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    own = {
        "vocab_size": 1000,
        "d_model": 128,
        "num_mel_bins": 80,
        "max_source_positions": 100,
        "dropout": 0.0,
    }
    model = _from_transformers(
        "Whisper", "ForConditionalGeneration", **layers, **heads, **widths, **special, **own
    )
    return _EncoderDecoder(model, "input_features"), (torch.randn(batch, 80, 200), *_tokens(batch, 32))


FAMILIES: dict[str, Callable[[int], Case]] = {
    "lstm": lstm,
    "gru": gru,
    "autoencoder": autoencoder,
    "transformer": transformer,
    "unet": unet,
    "diffusion": diffusion,
    "graph": graph,
    "dlrm": dlrm,
    "resnet50": resnet50,
    "mobilenet": mobilenet,
    "efficientnet": efficientnet,
    "convnext": convnext,
    "swin": swin,
    "llama": llama,
    "mixtral": mixtral,
    "mamba": mamba,
    "t5": t5,
    "whisper": whisper,
}
