"""Samples of ``lowering.aten.quantization``: integers equal those of PyTorch's quantized kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import Make, Sample, samples

aten, own = torch.ops.aten, torch.ops.torchstone

NOT_DIFFERENTIABLE = "PyTorch's quantized operators have no derivative"
SCALES, ZEROS = [0.05, 0.1, 0.013], [0, 3, -2]


def integers(make: Make, *shape: int) -> torch.Tensor:
    info = torch.iinfo(make.dtype)
    low, high = max(info.min, -1000), min(info.max, 1000)
    return torch.randint(low, high + 1, shape).to(make.dtype)


def ties(scale: float) -> torch.Tensor:
    """Return numbers halfway between neighbors, and far out ones (no NaN: C++ leaves its conversion open)."""
    far = [1e10, -1e10, float("inf"), float("-inf"), 0.0, -0.0]
    return torch.cat([(torch.arange(-300, 300) + 0.5) * torch.tensor(scale), torch.tensor(far)])


@samples(own.quantize.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.float32:
        return
    for dtype, zero in ((torch.uint8, 64), (torch.int8, 3), (torch.int32, -7)):
        yield Sample((make(50, low=-20, high=20), [0.05], [zero], -1, dtype), note=f"{dtype}")
    for dtype, zero in ((torch.uint8, 65), (torch.int8, 3), (torch.int8, 0), (torch.int32, 65)):
        yield Sample((ties(0.05), [0.05], [zero], -1, dtype), note=f"ties, {dtype}")
    x = torch.stack([ties(scale) for scale in SCALES])
    yield Sample((x, SCALES, ZEROS, 0, torch.int8), note="per channel, ties")
    yield Sample((make(2, 3, 4), SCALES, [0, 0, 0], 1, torch.int8), note="per channel")
    yield Sample((make(0, 3), [0.1], [0], -1, torch.int8), note="empty")


@samples(own.dequantize.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.int8, torch.uint8, torch.int32):
        return
    yield Sample((integers(make, 4, 5), [0.05], [3], -1))
    yield Sample((integers(make, 2, 3, 4), SCALES, ZEROS, 1), note="per channel")
    yield Sample((integers(make, 0, 3), [0.05], [0], -1), note="empty")


def weights(*shape: int, channels: bool) -> tuple[Any, ...]:
    """Weights of 7 bits: without VNNI instructions, eager PyTorch adds pairs of products in 16 bits."""
    count = shape[0] if channels else 1
    weight = torch.randint(-64, 64, shape, dtype=torch.int8)
    return weight, (torch.rand(count) * 0.02 + 0.001).tolist(), [0] * count


@samples(own.quantized_linear.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _linear(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.uint8:
        return
    for channels in (False, True):
        for relu in (False, True):
            given = integers(make, 40, 16), 0.05, 64, *weights(7, 16, channels=channels)
            yield Sample((*given, torch.randn(7), 0.1, 100, relu), note=f"channels {channels}, relu {relu}")
    given = integers(make, 2, 3, 16), 0.02, 0, *weights(7, 16, channels=False)
    yield Sample((*given, None, 0.3, 128, False), note="batches, no bias")
    small = integers(make, 64, 8), 0.5, 128, torch.randint(-4, 4, (5, 8), dtype=torch.int8), [0.5], [0]
    yield Sample((*small, None, 1.0, 127, False), note="ties")


@samples(own.quantized_conv.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _conv(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.uint8:
        return
    for channels in (False, True):
        given = integers(make, 2, 4, 9, 8), 0.05, 64, *weights(6, 4, 3, 3, channels=channels)
        window = ([1, 1], [1, 1], [1, 1], 1)
        yield Sample((*given, torch.randn(6), *window, 0.2, 100, False), note=f"channels {channels}")
    given = integers(make, 1, 4, 9, 8), 0.05, 64, *weights(6, 2, 3, 3, channels=False)
    yield Sample((*given, None, [2, 1], [0, 2], [1, 2], 2, 0.2, 100, True), note="all options")


@samples(own.quantized_batch_norm.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _batch_norm(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.uint8, torch.int8):
        return
    for relu in (False, True):
        statistics = torch.randn(3), torch.rand(3) + 0.5
        given = integers(make, 2, 3, 5, 4), 0.05, 30, torch.rand(3), torch.randn(3), *statistics
        yield Sample((*given, 1e-5, 0.04, 20, relu), note=f"relu {relu}")


@samples(own.quantized_add.default, own.quantized_mul.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _pairs(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.uint8, torch.int8):
        return
    zero = 64 if make.dtype == torch.uint8 else 3
    for relu in (False, True):
        pair = integers(make, 300), integers(make, 300)
        yield Sample((*pair, [0.05, 0.03, 0.07], [zero, zero - 5, zero + 1], relu), note=f"relu {relu}")
    # In the elements after the last whole vector of 64, eager rounds ties in another way.
    pair = integers(make, 256), integers(make, 256)
    yield Sample((*pair, [0.5, 0.5, 1.0], [zero, zero, zero + 1], False), note="ties")
    pair = integers(make, 4, 1, 3), integers(make, 5, 3)
    yield Sample((*pair, [0.05, 0.03, 0.07], [zero] * 3, False), note="broadcast")


@samples(own.quantized_relu.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _relu(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.int8, torch.uint8, torch.int32):
        return
    yield Sample((integers(make, 4, 5), 0.05, 3))
    yield Sample((integers(make, 0), 0.05, 0), note="empty")


@samples(aten.fake_quantize_per_tensor_affine_cachemask.default)
def _fake_quantize(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 6), 0.05, 0, -128, 127))
    yield Sample((make(5, 6), 0.1, 7, 0, 15), note="few steps")
    yield Sample((ties(0.05).to(make.dtype)[:600], 0.05, 3, -128, 127), note="ties", gradient=False)
    yield Sample((make(0, 3), 0.1, 0, 0, 15), note="empty")


@samples(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def _fake_quantize_by_tensors(make: Make) -> Iterator[Sample]:
    for enabled in (1, 0):
        numbers = torch.tensor([0.05]), torch.tensor([3], dtype=torch.int32), torch.tensor([enabled])
        yield Sample((make(5, 6), *numbers, -128, 127), note=f"enabled {enabled}", gradient=False)


@samples(aten.fake_quantize_per_channel_affine_cachemask.default)
def _fake_quantize_per_channel(make: Make) -> Iterator[Sample]:
    scales, zeros = torch.tensor(SCALES), torch.tensor(ZEROS, dtype=torch.int32)
    yield Sample((make(2, 3, 4), scales, zeros, 1, -128, 127), gradient=False)
    yield Sample((make(3, 5), scales, zeros, 0, -8, 7), note="few steps", gradient=False)
