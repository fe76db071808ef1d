"""Resampling by hand with scales that contradict the output size, which some of eager's kernels ignore."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import UnsupportedOperators

aten = torch.ops.aten

PLANE = (6, 5)
SIZES = [PLANE, (6, 10), (12, 5), (12, 10), (9, 3)]
SCALES = [(2.5, 3.0), (None, 3.0), (2.5, None)]
"""Smaller ones make eager's antialiased kernels read behind the input where the size changes."""
ANTIALIASED = [
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    *(["_upsample_lanczos2d_aa"] if hasattr(aten, "_upsample_lanczos2d_aa") else []),
]
NEAREST = ["upsample_nearest", "_upsample_nearest_exact"]


def agrees(function: Any, *tensors: torch.Tensor) -> None:
    torch.testing.assert_close(
        torchstone.export(function, tensors)(*tensors), function(*tensors), atol=1e-4, rtol=1e-5
    )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("upsample_bicubic2d", torch.float32),
        *((name, dtype) for name in ANTIALIASED for dtype in (torch.float32, torch.uint8)),
    ],
)
def test_weighted_resampling(name: str, align_corners: bool, dtype: torch.dtype) -> None:
    operator = getattr(aten, name).default
    cases = [(PLANE, (0.5, 0.5)), *((size, scales) for size in SIZES for scales in SCALES)]
    agrees(
        lambda x: [operator(x, size, align_corners, *scales) for size, scales in cases],
        (torch.rand(1, 2, *PLANE) * 255).to(dtype),
    )


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d", *ANTIALIASED])
def test_gradients_of_weighted_resampling(name: str, align_corners: bool) -> None:
    operator = getattr(aten, f"{name}_backward").default
    agrees(
        lambda *grads: [
            operator(grad, grad.shape[2:], [1, 2, *PLANE], align_corners, *scales)
            for grad in grads
            for scales in SCALES
        ],
        *(torch.rand(1, 2, *size) for size in SIZES),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("name", NEAREST)
def test_nearest_elements(name: str, rank: int) -> None:
    forward = getattr(aten, f"{name}{rank}d").default
    backward = getattr(aten, f"{name}{rank}d_backward").default
    agrees(
        lambda x, *grads: [
            one
            for grad in grads
            for scale in (0.5, 1.1, None)
            for one in (
                forward(x, grad.shape[2:], *[scale] * rank),
                backward(grad, grad.shape[2:], x.shape, *[scale] * rank),
            )
        ],
        torch.rand(1, 2, *[5] * rank),
        *(torch.rand(1, 2, *[size] * rank) for size in (5, 10, 7)),
    )


@pytest.mark.parametrize("width", [64, 65])
def test_nearest_elements_of_small_and_large_planes(width: int) -> None:
    """The sum of the sides decides which kernel eager takes."""
    agrees(lambda x: aten.upsample_nearest2d(x, [64, width], 0.5, 0.5), torch.rand(1, 8, 64, width))


@pytest.mark.parametrize("shape", [(1, 8, 64, 65), (1, 8, 5, 5, 5)], ids=str)
def test_nearest_elements_with_channels_last(shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    operator = getattr(aten, f"upsample_nearest{rank}d")
    x = torch.rand(shape).to(memory_format=[torch.channels_last, torch.channels_last_3d][rank - 2])
    agrees(lambda x: operator(x, [2 * size for size in shape[2:]], *[2.0] * rank), x)
    with pytest.raises(UnsupportedOperators, match="contradict the output size, and its channels lie last"):
        torchstone.export(lambda x: operator(x, shape[2:], *[0.5] * rank), (x,))
