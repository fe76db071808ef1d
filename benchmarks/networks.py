"""The networks by which speed is judged, at sizes that keep two cores busy.

Each factory takes a batch size and returns ``(model, inputs)``: random weights, no downloads, dropout 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchstone.parity.zoo import networks as zoo

Case = tuple[nn.Module, tuple[Any, ...]]


def mlp(batch: int) -> Case:
    """Four linear layers, 1,024 wide."""
    layers: list[nn.Module] = []
    for _ in range(3):
        layers += [nn.Linear(1024, 1024), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10)), (torch.randn(batch, 1024),)


def cnn(batch: int) -> Case:
    """Two convolutions and two linear layers on images of 28 × 28."""
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )
    return model, (torch.randn(batch, 1, 28, 28),)


class _Sequences(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], width: int, layers: int) -> None:
        super().__init__()
        self.recurrent = kind(width, width, num_layers=layers, batch_first=True)
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


def lstm(batch: int) -> Case:
    """Two layers of 128 over 64 steps."""
    return _Sequences(nn.LSTM, 128, 2), (torch.randn(batch, 64, 128),)


def resnet18(batch: int) -> Case:
    model, _ = zoo.resnet18()
    return model, (torch.randn(batch, 3, 96, 96),)


def vit(batch: int) -> Case:
    model, _ = zoo.vit()
    return model, (torch.randn(batch, 3, 96, 96),)


def bert(batch: int) -> Case:
    model, _ = zoo.bert()
    return model, (torch.randint(0, model.config.vocab_size, (batch, 64)),)


def gpt2(batch: int) -> Case:
    model, _ = zoo.gpt2()
    return model, (torch.randint(0, model.config.vocab_size, (batch, 64)),)


CLASSICS = ["mlp", "cnn", "lstm", "resnet18", "vit", "bert", "gpt2"]

NETWORKS: dict[str, Callable[[int], Case]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "resnet18": resnet18,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
}

TRAINING_BATCH = {"mlp": 128, "cnn": 64, "lstm": 32, "resnet18": 8, "vit": 8, "bert": 8, "gpt2": 8}
