"""Samples of ``lowering.aten.exported_quantization``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from . import Make, Sample, samples
from .quantization import NOT_DIFFERENTIABLE, SCALES, ZEROS, integers, ties

decomposed = torch.ops.quantized_decomposed
RANGES: dict[torch.dtype, tuple[int, int]] = {
    torch.int8: (-128, 127),
    torch.uint8: (0, 255),
    torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1),
}


@samples(decomposed.quantize_per_tensor.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return
    for dtype in (torch.int8, torch.uint8, torch.int16):
        yield Sample((make(5, 6), 0.05, 3, *RANGES[dtype], dtype), note=f"{dtype}")
    yield Sample((make(5, 6), 0.1, 0, -8, 7, torch.int8), note="4 bits")
    yield Sample((ties(0.05).to(make.dtype)[:600], 0.05, 3, -128, 127, torch.int8), note="ties")
    yield Sample((make(0, 3), 0.1, 0, -128, 127, torch.int8), note="empty")


def parameters() -> tuple[Any, ...]:
    return torch.tensor(SCALES), torch.tensor(ZEROS)


@samples(decomposed.quantize_per_channel.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize_channels(make: Make) -> Iterator[Sample]:
    if make.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return
    yield Sample((make(3, 5), *parameters(), 0, -128, 127, torch.int8))
    yield Sample((make(2, 3, 4), *parameters(), 1, -8, 7, torch.int8), note="4 bits, the middle axis")


@samples(decomposed.dequantize_per_tensor.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize(make: Make) -> Iterator[Sample]:
    if make.dtype not in RANGES:
        return
    given = integers(make, 4, 5), 0.05, 3, *RANGES[make.dtype], make.dtype
    yield Sample(given)
    yield Sample(given, {"out_dtype": torch.float16}, note="half")


@samples(decomposed.dequantize_per_channel.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize_channels(make: Make) -> Iterator[Sample]:
    if make.dtype not in RANGES:
        return
    options = 1, *RANGES[make.dtype], make.dtype
    yield Sample((integers(make, 2, 3, 4), *parameters(), *options))
    yield Sample((integers(make, 2, 3, 4), torch.tensor(SCALES), None, *options), note="no zero points")
    yield Sample(
        (integers(make, 2, 3, 4), *parameters(), *options), {"out_dtype": torch.float16}, note="half"
    )


FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def numbers(scale: float, zero: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    return torch.tensor([scale], dtype=dtype), torch.tensor([zero])


@samples(decomposed.quantize_per_tensor.tensor, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize_by_tensors(make: Make) -> Iterator[Sample]:
    if make.dtype not in FLOATS:
        return
    yield Sample((make(5, 6), *numbers(0.05, 3), -128, 127, torch.int8))
    yield Sample((ties(0.05).to(make.dtype)[:600], *numbers(0.05, 3), 0, 255, torch.uint8), note="ties")
    yield Sample((make(5), *numbers(0.05, 3, torch.float32), -8, 7, torch.int8), note="float32 scale")
    yield Sample((make(), *numbers(0.1, 0), -128, 127, torch.int8), note="0-d")
    yield Sample((make(0, 3), *numbers(0.1, 0), -128, 127, torch.int8), note="empty")


@samples(decomposed.dequantize_per_tensor.tensor, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize_by_tensors(make: Make) -> Iterator[Sample]:
    if make.dtype not in RANGES:
        return
    given = integers(make, 4, 5), *numbers(0.05, 3), *RANGES[make.dtype], make.dtype
    yield Sample(given)
    yield Sample(given, {"out_dtype": torch.float16}, note="half")


@samples(
    decomposed.choose_qparams.tensor,
    decomposed.choose_qparams_symmetric.tensor,
    gradient=False,
    reason=NOT_DIFFERENTIABLE,
)
def _choose(make: Make) -> Iterator[Sample]:
    if make.dtype not in FLOATS:
        return
    eps = torch.finfo(torch.float32).eps
    yield Sample((make(5, 6), -128, 127, eps, torch.int8))
    yield Sample((make(5, 6), 0, 255, eps, torch.uint8), note="unsigned")
    yield Sample((make(7, low=2, high=9), -127, 127, eps, torch.int8), note="positive")
    yield Sample((make(7, low=-9, high=-2), 0, 127, eps, torch.uint8), note="negative, 7 bits")
    yield Sample((torch.zeros(3, dtype=make.dtype), -128, 127, eps, torch.int8), note="zero")
