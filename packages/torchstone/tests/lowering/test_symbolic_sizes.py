"""Lowerings whose arithmetic on sizes would be wrong if a symbol were frozen at its first value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchstone


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(lambda x: x.median(0).values, id="median"),
        pytest.param(lambda x: x[-1:, ::2], id="slice"),
        pytest.param(lambda x: x[torch.tensor([0, -1])], id="negative index"),
        pytest.param(lambda x: x.select_scatter(x[0], 0, -1), id="select_scatter"),
        pytest.param(lambda x: x.roll(1, 0), id="roll"),
        pytest.param(lambda x: torch.searchsorted(x.sort(0).values[:, 0], x), id="searchsorted"),
        pytest.param(lambda x: torch.nonzero_static(x > 0, size=60), id="nonzero_static"),
        pytest.param(lambda x: torch.nn.functional.pad(x, (0, 0, 2, 1)), id="pad"),
        pytest.param(lambda x: torch.take(x, torch.tensor([-1])), id="take"),
    ],
)
def test_one_program_for_every_size(model: Callable[[torch.Tensor], torch.Tensor]) -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torchstone.export(model, (torch.randn(4, 3),), dynamic_shapes=({0: rows},))
    for size in (3, 20):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), model(x))
