"""The memory that a graph takes at most, against values counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torchstone.training.live_memory import LiveMemory, live_memory

Tensor = torch.Tensor
ONE = 100 * 4
"""The bytes of one tensor."""


def chain(x: Tensor) -> Tensor:
    for _ in range(5):
        x = x + 1  # two at a time
    return x


def kept(x: Tensor) -> list[Tensor]:
    return [x + 1, x + 2, x + 3]


def viewed(x: Tensor) -> Tensor:
    made = x + 1
    view = made.view(10, 10)
    other = x * 2  # the view still needs what was made
    return view.sum() + other.sum()


def written(x: Tensor) -> Tensor:
    return (x + 1).mul_(2).add_(3)


def of_arguments(x: Tensor) -> Tensor:
    return x.view(10, 10).t()


@pytest.mark.parametrize(
    ("function", "most"),
    [(chain, 2 * ONE), (kept, 3 * ONE), (viewed, 2 * ONE + 4), (written, ONE), (of_arguments, 0)],
)
def test_the_most_memory_at_once(function: Callable[..., Any], most: int) -> None:
    graph = make_fx(function, tracing_mode="fake")(torch.ones(100))
    assert live_memory(graph) == LiveMemory(ONE, most)
