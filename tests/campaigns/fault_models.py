"""Models for the campaign of injected faults: each contains what one kind of fault needs.

Factories have no arguments, as ``torchstone bisect`` calls them.
"""

from __future__ import annotations

import itertools
import os
import random
import time
import uuid
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional

Made = tuple[Callable[..., Any], tuple[Any, ...]]


class Mixed(nn.Module):
    """Operators of many families, and results of many kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.convolution = nn.Conv1d(8, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.hidden = nn.Linear(6, 10)
        self.outer = nn.Linear(10, 4)

    def forward(self, indices: torch.Tensor) -> dict[str, Any]:
        x = self.embedding(indices).transpose(1, 2)
        x = functional.relu(self.convolution(x)).transpose(1, 2)
        x = torch.tanh(self.hidden(self.norm(x)))
        logits = self.outer(x).sin()
        flags = logits > 0.1
        return {
            "best": logits.argmax(-1),
            "flags": flags,
            "chances": logits.softmax(-1),
            "spread": (logits.exp().mean(1), torch.where(flags, logits, logits * 0.5)),
        }


def mixed() -> Made:
    torch.manual_seed(7)
    return Mixed(), (torch.randint(0, 11, (3, 9)),)


class Small(nn.Module):
    """Two layers and a function between them."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 5)
        self.outer = nn.Linear(5, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.sin(self.inner(x)))


def small() -> Made:
    torch.manual_seed(6)
    return Small(), (torch.randn(8, 6),)


def linear() -> Made:
    torch.manual_seed(5)
    return nn.Linear(6, 4), (torch.randn(8, 6),)


def mixed_with_dropout() -> Made:
    torch.manual_seed(8)
    inner = [nn.Linear(6, 12), nn.Dropout(0.4), nn.Tanh(), nn.Linear(12, 5), nn.Dropout(0.2), nn.Sigmoid()]
    return nn.Sequential(*inner), (torch.randn(7, 6),)


# --- rounding: every operator is right, and tiny differences grow --------------------------------


class Scaled(nn.Module):
    """A layer and a ``function`` of its results, which are scaled so that their last bits matter."""

    def __init__(self, function: Callable[[torch.Tensor], Any], size: int = 300) -> None:
        super().__init__()
        self.layer = nn.Linear(size, 40)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


def scaled(function: Callable[[torch.Tensor], Any], size: int = 300) -> Made:
    torch.manual_seed(9)
    return Scaled(function, size), (torch.randn(30, size),)


def oscillation() -> Made:
    return scaled(lambda y: torch.sin(y * 1e6))


def differences() -> Made:
    return scaled(lambda y: (y + 4096.0 - 4096.0 - y) * 1e5 + torch.cos(y * 3e5))


def growth() -> Made:
    return scaled(lambda y: torch.exp(y * 12.0))


def reciprocals() -> Made:
    return scaled(lambda y: 1.0 / (y - y.mean(0, keepdim=True).roll(1, 1) * 0 - y.detach().median() + 1e-7))


def sharp_softmax() -> Made:
    return scaled(lambda y: torch.softmax(y * 1e5, 0))


def rounded() -> Made:
    return scaled(lambda y: torch.round(y * 1e6))


def remainders() -> Made:
    return scaled(lambda y: torch.remainder(y * 1e5, 1.0))


def large_sum() -> Made:
    torch.manual_seed(10)
    x = torch.randn(400_000) * 1e4
    return lambda a: (a - a.mean()).sum() * 1e3, (x,)


def large_products() -> Made:
    torch.manual_seed(11)
    return lambda a, b: (a @ b, (a @ b).sum()), (torch.randn(20, 5000) * 1e3, torch.randn(5000, 20) * 1e3)


def long_chain() -> Made:
    def chaotic(x: torch.Tensor) -> torch.Tensor:
        for _ in range(40):
            x = 3.99 * x * (1.0 - x)
        return x

    torch.manual_seed(12)
    return chaotic, (torch.rand(64) * 0.8 + 0.1,)


class BiasBeforeNorm(nn.Module):
    """A bias whose gradient is zero except for rounding errors, which Adam scales up like any gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.layer(x)))


def bias_before_norm() -> Made:
    torch.manual_seed(13)
    return BiasBeforeNorm(), (torch.randn(50, 16),)


# --- nondeterminism: eager PyTorch itself behaves differently each time --------------------------


class Around(nn.Module):
    """A layer, and a function that is applied to its results."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(self.layer(x))


def around(function: Callable[[torch.Tensor], Any]) -> Made:
    torch.manual_seed(14)
    return Around(function), (torch.randn(5, 4),)


def python_random() -> Made:
    return around(lambda y: y * random.random())


def numpy_random() -> Made:
    return around(lambda y: y + torch.from_numpy(numpy.random.rand(5, 3).astype("float32")))


def clock() -> Made:
    return around(lambda y: y * (time.time_ns() % 1_000_003))


def entropy() -> Made:
    return around(lambda y: y + int.from_bytes(os.urandom(4), "little"))


def unseeded_generator() -> Made:
    def add_noise(y: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator()
        generator.seed()
        return y + torch.randn(5, 3, generator=generator)

    return around(add_noise)


def unique_name() -> Made:
    return around(lambda y: y / (uuid.uuid4().int % 10_007 + 1))


_CALLS = itertools.count(1)


def counter() -> Made:
    return around(lambda y: y * next(_CALLS))


_NAMES = ("queen", "rook", "bishop", "knight", "pawn", "king", "castle", "mate")


def order_of_a_set() -> Made:
    def fold(y: torch.Tensor) -> torch.Tensor:
        for name in set(_NAMES):
            y = y * 1.5 + len(name) * 1.25 if name > "l" else torch.tanh(y)
        return y

    return around(fold)


def hash_of_text() -> Made:
    return around(lambda y: y * (hash("weights") % 1009))


class NoisyGradient(torch.autograd.Function):
    """A function with a correct forward, whose gradient has noise that no seed repeats."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        del ctx
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        del ctx
        return gradient * random.random()


def random_gradient() -> Made:
    return around(lambda y: NoisyGradient.apply(torch.tanh(y)))


def another_branch() -> Made:
    return around(lambda y: torch.sigmoid(y) if next(_CALLS) % 2 else torch.tanh(y))
