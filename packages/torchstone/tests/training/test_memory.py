"""The memory that a step keeps from its forward pass for its backward pass."""

from __future__ import annotations

import torch
from torch import nn

import torchstone

ROWS, WIDTH, BLOCKS = 1024, 64, 8
VALUE = ROWS * WIDTH * 4
"""The number of bytes of a layer's input or result."""


def test_inputs_of_layer_normalization_are_kept_once() -> None:
    """Like eager PyTorch, a step keeps the input of each layer, but not its standardized form as well."""
    blocks = (nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)) for _ in range(BLOCKS))
    model = nn.Sequential(*blocks)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    step = torchstone.compile_step(model, optimizer, lambda model, batch: model(batch).square().mean())
    batch = torch.randn(ROWS, WIDTH)
    step(batch)
    with torchstone.profile() as seen:
        step(batch)
    (program,) = seen.programs
    kept = program.memory["intermediate"] / VALUE
    assert 2 * BLOCKS - 2 <= kept <= 2 * BLOCKS + 4
