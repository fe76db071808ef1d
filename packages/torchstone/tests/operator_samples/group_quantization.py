"""Samples of ``lowering.aten.group_quantization``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import Make, Sample, samples
from .exported_quantization import FLOATS, RANGES, decomposed
from .quantization import NOT_DIFFERENTIABLE, integers, ties


def parameters(*shape: int, scale: torch.dtype, zero: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(shape).to(scale) * 0.1 + 0.01, torch.randint(-5, 6, shape).to(zero)


TYPES = ((torch.float64, torch.int64), (torch.float32, torch.float32), (torch.float32, torch.int32))
"""Dtypes of scales and zero points; the first are for asymmetric tokens, the second for symmetric ones."""


@samples(decomposed.quantize_per_token.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize_tokens(make: Make) -> Iterator[Sample]:
    if make.dtype not in FLOATS:
        return
    for scale, zero in TYPES:
        given = make(2, 3, 40), *parameters(2, 3, 1, scale=scale, zero=zero)
        yield Sample((*given, -128, 127, torch.int8), note=f"{scale}, {zero}")
    x = ties(0.05).to(make.dtype)[None, :600]
    given = x, torch.tensor([[0.05]]), torch.tensor([[3.0]])
    yield Sample((*given, -128, 127, torch.int8), note="ties")
    yield Sample(
        (make(0, 4), *parameters(0, 1, scale=torch.float32, zero=torch.float32), 0, 255, torch.uint8)
    )


@samples(decomposed.dequantize_per_token.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize_tokens(make: Make) -> Iterator[Sample]:
    if make.dtype not in RANGES:
        return
    for scale, zero in TYPES:
        given = integers(make, 2, 3, 40), *parameters(2, 3, 1, scale=scale, zero=zero)
        yield Sample((*given, *RANGES[make.dtype], make.dtype, torch.float32), note=f"{scale}, {zero}")


@samples(decomposed.quantize_per_channel_group.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _quantize_groups(make: Make) -> Iterator[Sample]:
    if make.dtype not in FLOATS:
        return
    for scale, zero in TYPES:
        given = make(6, 32), *parameters(6, 4, scale=scale, zero=zero)
        yield Sample((*given, -8, 7, torch.int8, 8), note=f"{scale}, {zero}")
    given = make(6, 8), *parameters(6, 1, scale=torch.float32, zero=torch.int32)
    yield Sample((*given, 0, 15, torch.uint8, 128), note="a column narrower than a group")


@samples(decomposed.dequantize_per_channel_group.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _dequantize_groups(make: Make) -> Iterator[Sample]:
    if make.dtype not in RANGES:
        return
    options = *RANGES[make.dtype], make.dtype, 8
    for scale, zero in TYPES:
        given = integers(make, 6, 32), *parameters(6, 4, scale=scale, zero=zero)
        yield Sample((*given, *options, torch.float32), note=f"{scale}, {zero}")
    scales, _ = parameters(6, 4, scale=torch.bfloat16, zero=torch.int32)
    yield Sample((integers(make, 6, 32), scales, None, *options, torch.bfloat16), note="no zero points")
