"""Convolutions of signals with one channel, which become a matrix product of their windows."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch.export import Dim

import torchstone

CONVOLUTIONS = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}
"""Convolutions by their number of spatial axes."""
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64)


class Filters(torch.nn.Module):
    def __init__(self, rank: int, dtype: torch.dtype, **options: int) -> None:
        super().__init__()
        self.rank, self.options = rank, options
        self.register_buffer("weight", values((4, 1, *[3] * rank), dtype))
        self.register_buffer("bias", values((4,), dtype))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return CONVOLUTIONS[self.rank](x, self.weight, self.bias, **self.options)


def values(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if not dtype.is_floating_point and not dtype.is_complex:
        return torch.randint(-4, 5, shape, dtype=dtype)
    return torch.randn(shape, dtype=dtype)


@pytest.mark.sampled(96)
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("stride", "padding", "dilation"), list(product((1, 2), (0, 2), (1, 2))), ids=str)
@pytest.mark.parametrize("rank", CONVOLUTIONS)
def test_an_artifact_agrees_with_eager(
    rank: int, stride: int, padding: int, dilation: int, dtype: torch.dtype, symbolic: bool, tmp_path: Path
) -> None:
    model = Filters(rank, dtype, stride=stride, padding=padding, dilation=dilation)
    axes = (0, *range(2, 2 + rank))
    shapes = (dict.fromkeys(axes, Dim.AUTO),) if symbolic else None
    sizes = ((2, 1, 8, 7, 9), (3, 1, 11, 9, 8))[: 1 + symbolic]
    example = values(sizes[0][: 2 + rank], dtype)
    torchstone.export(model, (example,), dynamic_shapes=shapes).save(tmp_path / "filters.stone")
    program = torchstone.load(tmp_path / "filters.stone")
    for size in sizes:
        x = values(size[: 2 + rank], dtype)
        torch.testing.assert_close(program(x), model(x))
