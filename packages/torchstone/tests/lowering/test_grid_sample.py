"""Samples at positions that are NaN or infinite, of inputs that hold such values."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import torchstone

SAMPLERS = {2: torch.ops.aten.grid_sampler_2d, 3: torch.ops.aten.grid_sampler_3d}
POSITIONS = (math.nan, math.inf, -math.inf, -1.7, -0.98, 0.3, 1.2)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", [0, 1, 2], ids=["zeros", "border", "reflection"])
@pytest.mark.parametrize(("rank", "mode"), [(2, 0), (2, 1), (2, 2), (3, 0), (3, 1)])
def test_positions_that_are_nowhere(rank: int, mode: int, padding: int, corners: bool) -> None:
    image = torch.arange(4.0**rank).reshape(1, 1, *[4] * rank)
    image.view(-1)[0], image.view(-1)[-1] = math.nan, math.inf
    grid = torch.tensor(list(itertools.product(POSITIONS, repeat=rank))).reshape(
        1, *[1] * (rank - 1), -1, rank
    )

    def sampled(image: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return SAMPLERS[rank](image, grid, mode, padding, corners)

    found = torchstone.export(sampled, (image, grid))(image, grid)
    torch.testing.assert_close(found, sampled(image, grid), equal_nan=True)
