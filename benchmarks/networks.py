"""The classic seven networks by which speed is judged, and the table of all networks.

Each factory takes a batch size and returns ``(model, inputs)``: random weights, no downloads, dropout 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchstone.parity.zoo import networks as zoo
from torchstone.parity.zoo.families import FAMILIES, Case


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


def resnet18(batch: int) -> Case:
    model, _ = zoo.resnet18()
    return model, (torch.randn(batch, 3, 96, 96),)


def vit(batch: int) -> Case:
    model, _ = zoo.vit()
    return model, (torch.randn(batch, 3, 96, 96),)


def _tokens(model: Any, batch: int) -> torch.Tensor:
    return torch.randint(0, model.config.vocab_size, (batch, 64))


def bert(batch: int) -> Case:
    model, _ = zoo.bert()
    return model, (_tokens(model, batch),)


def gpt2(batch: int) -> Case:
    model, _ = zoo.gpt2()
    return model, (_tokens(model, batch),)


CLASSICS = ["mlp", "cnn", "lstm", "resnet18", "vit", "bert", "gpt2"]

NETWORKS: dict[str, Callable[[int], Case]] = {
    "mlp": mlp,
    "cnn": cnn,
    "resnet18": resnet18,
    "vit": vit,
    "bert": bert,
    "gpt2": gpt2,
    **FAMILIES,
}

TRAINING_BATCH = dict.fromkeys(NETWORKS, 8) | {
    "mlp": 128,
    "cnn": 64,
    "lstm": 32,
    "gru": 32,
    "autoencoder": 128,
    "graph": 16,
    "dlrm": 256,
}
