"""Resampling by hand with scales that contradict the output size, which some of eager's kernels ignore."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from torchstone.errors import UnsupportedOperators

aten = torch.ops.aten

PLANE = (6, 5)
SIZES = [PLANE, (6, 10), (12, 5), (12, 10), (9, 3)]
SCALES = [(2.5, 3.0), (None, 3.0), (2.5, None)]
ANTIALIASED = [
    *("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    *(["_upsample_lanczos2d_aa"] if hasattr(aten, "_upsample_lanczos2d_aa") else []),
]
WEIGHTED = ["upsample_bilinear2d", "upsample_bicubic2d"]
NEAREST = ["upsample_nearest", "_upsample_nearest_exact"]


def agrees(function: Any, *tensors: torch.Tensor) -> None:
    torch.testing.assert_close(
        torchstone.export(function, tensors)(*tensors), function(*tensors), atol=1e-4, rtol=1e-5
    )


@pytest.mark.sampled(32)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in WEIGHTED for dtype in (torch.float32, torch.float64, torch.uint8)),
        *((name, dtype) for name in ANTIALIASED for dtype in (torch.float32, torch.uint8)),
    ],
)
def test_weighted_resampling(name: str, align_corners: bool, dtype: torch.dtype) -> None:
    operator = getattr(aten, name).default
    small = [] if name in ANTIALIASED else [(size, (0.3, 1e-6)) for size in SIZES]
    cases = [(PLANE, (0.5, 0.5)), *small, *((size, scales) for size in SIZES for scales in SCALES)]
    agrees(
        lambda x: [operator(x, size, align_corners, *scales) for size, scales in cases],
        (torch.rand(1, 2, *PLANE) * 255).to(dtype),
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("name", [*WEIGHTED, *ANTIALIASED])
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


@pytest.mark.kept("upsample_nearest-1", "_upsample_nearest_exact-2")
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
    """Eager PyTorch chooses its kernel by the sum of the sides."""
    agrees(lambda x: aten.upsample_nearest2d(x, [64, width], 0.5, 0.5), torch.rand(1, 8, 64, width))


@pytest.mark.parametrize("shape", [(1, 8, 64, 65), (1, 8, 5, 5, 5)], ids=str)
def test_nearest_elements_with_channels_last(shape: tuple[int, ...]) -> None:
    rank = len(shape) - 2
    operator = getattr(aten, f"upsample_nearest{rank}d")
    x = torch.rand(shape).to(memory_format=[torch.channels_last, torch.channels_last_3d][rank - 2])
    agrees(lambda x: operator(x, [2 * size for size in shape[2:]], *[2.0] * rank), x)
    with pytest.raises(UnsupportedOperators, match="contradict the output size, and its channels lie last"):
        torchstone.export(lambda x: operator(x, shape[2:], *[0.5] * rank), (x,))


@pytest.mark.kept("_upsample_bilinear2d_aa-0.3", "_upsample_bicubic2d_aa-1e-06")
@pytest.mark.parametrize("scale", [0.3, 1e-2, 1e-6])
@pytest.mark.parametrize("name", ANTIALIASED)
def test_filters_that_lie_beyond_the_input(name: str, scale: float) -> None:
    """Eager PyTorch's kernels would read memory behind the input."""
    forward, backward = getattr(aten, name).default, getattr(aten, f"{name}_backward").default
    with pytest.raises(
        UnsupportedOperators, match=f"scales_w={scale} leaves nothing of 5 elements for some of"
    ):
        torchstone.export(lambda x: forward(x, (6, 15), False, None, scale), (torch.rand(1, 2, *PLANE),))
    with pytest.raises(
        UnsupportedOperators, match=f"scales_w={scale} leaves nothing of 5 elements for some of"
    ):
        torchstone.export(
            lambda grad: backward(grad, (6, 15), [1, 2, *PLANE], False, None, scale),
            (torch.rand(1, 2, 6, 15),),
        )


@pytest.mark.parametrize("name", ANTIALIASED)
def test_antialiased_columns(name: str) -> None:
    """Eager's kernel confuses rows and columns of a single column of floats, so compare with a row."""
    operator = getattr(aten, name).default
    x = torch.rand(1, 2, *PLANE)
    found = torchstone.export(lambda x: operator(x, (10, 1), False), (x,))(x)
    torch.testing.assert_close(found, operator(x.mT.contiguous(), (1, 10), False).mT)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8], ids=str)
@pytest.mark.parametrize("factors", [1.05, (2.1, 0.6)], ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_compiled_calls_heed_scales_and_round_as_kernels_do(
    mode: str, factors: float | tuple[float, float], dtype: torch.dtype
) -> None:
    """The sizes are eager PyTorch's, unlike those of PyTorch's expansions. The second sizes are symbolic."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=factors, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="torchstone")
    for size in [(9, 7), (12, 8)]:
        x = (
            torch.rand(1, 2, *size)
            if dtype.is_floating_point
            else torch.randint(256, (1, 2, *size), dtype=dtype)
        )
        torch.testing.assert_close(
            compiled(x), function(x), atol=1e-5 if dtype.is_floating_point else 0, rtol=1e-5
        )


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradients_of_compiled_calls(mode: str) -> None:
    x = torch.rand(1, 2, 9, 7, requires_grad=True)

    def function(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=1.05, mode=mode).square().sum()

    torch._dynamo.reset()
    (found,) = torch.autograd.grad(torch.compile(function, backend="torchstone")(x), x)
    (expected,) = torch.autograd.grad(function(x), x)
    torch.testing.assert_close(found, expected)
