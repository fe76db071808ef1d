"""Quantized networks: simulated, of PyTorch's quantized modules and operators, with packed 4-bit weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.ao.nn import quantized

from .example import Example, model

SCALE, ZERO = 0.05, 64
STEP = 0.1037
"""The scale of a result, such that no sum or product of multiples of 0.05 is halfway between two steps.

Halfway values would differ: whether eager's kernel rounds them up or down depends on whether the element
belongs to a full vector.
"""
BATCH, WIDTH = 4, 16


def weights(*shape: int) -> Tensor:
    """Return int8 weights with a scale for each output channel."""
    values = torch.randn(shape) * 0.3
    scales = values.flatten(1).abs().amax(1).double() / 127
    return torch.quantize_per_channel(
        values, scales, torch.zeros(shape[0], dtype=torch.int64), 0, torch.qint8
    )


def linear(inputs: int, outputs: int) -> quantized.Linear:
    layer = quantized.Linear(inputs, outputs)
    layer.set_weight_bias(weights(outputs, inputs), torch.randn(outputs) * 0.1)
    layer.scale, layer.zero_point = SCALE, ZERO
    return layer


def convolution(inputs: int, outputs: int) -> quantized.Conv2d:
    layer = quantized.Conv2d(inputs, outputs, 3, padding=1)
    layer.set_weight_bias(weights(outputs, inputs, 3, 3), torch.randn(outputs) * 0.1)
    layer.scale, layer.zero_point = SCALE, ZERO
    return layer


def quantize() -> nn.Module:
    return quantized.Quantize(SCALE, ZERO, torch.quint8)


def between(*layers: nn.Module) -> nn.Module:
    """Return ``layers`` between a quantization of the input and a dequantization of the output."""
    return nn.Sequential(quantize(), *layers, quantized.DeQuantize())


class Combined(nn.Module):
    """An operator of ``torch.ops.quantized`` applied to two quantized tensors."""

    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.quantize, self.operator = quantize(), operator

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.operator(self.quantize(x), self.quantize(y), STEP, 128).dequantize()


class PackedLinear(nn.Module):
    """A linear layer whose 4-bit weights lie two to a byte, with a scale and a zero point for each group."""

    group = 8
    packed: Tensor
    scales: Tensor
    zeros: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        codes = torch.randint(16, (outputs, inputs), dtype=torch.uint8)
        self.register_buffer("packed", codes[:, 0::2] | (codes[:, 1::2] << 4))
        self.register_buffer("scales", torch.rand(outputs, inputs // self.group, 1) * 0.1)
        self.register_buffer("zeros", torch.randint(16, (outputs, inputs // self.group, 1)).float())

    def forward(self, x: Tensor) -> Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1)
        groups = codes.unflatten(1, (-1, self.group)).float()
        return x @ ((groups - self.zeros) * self.scales).flatten(1).T


@model
def fake_quantize_per_tensor() -> Example:
    """QAT fake quantization"""
    x = torch.randn(BATCH, WIDTH) * 3
    return Example(lambda x: torch.fake_quantize_per_tensor_affine(x, SCALE, 0, -128, 127), (x,))


@model
def quantized_linear() -> Example:
    """Quantized linear layer"""
    return Example(between(linear(WIDTH, 8)), (torch.randn(BATCH, WIDTH),), trains=False, ruled=True)


@model
def quantized_conv2d() -> Example:
    """Quantized convolution"""
    return Example(between(convolution(3, 5)), (torch.randn(2, 3, 7, 7),), trains=False, ruled=True)


@model
def quantized_relu() -> Example:
    """Quantized ReLU activation"""
    return Example(between(nn.ReLU()), (torch.randn(BATCH, WIDTH),), trains=False, ruled=True)


@model
def quantized_add() -> Example:
    """Quantized elementwise ops"""
    return Example(Combined(torch.ops.quantized.add), pair(), trains=False, ruled=True)


@model
def quantized_mul() -> Example:
    """Quantized elementwise ops"""
    return Example(Combined(torch.ops.quantized.mul), pair(), trains=False, ruled=True)


def pair() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)


@model
def int8_linear() -> Example:
    """Full INT8 inference model"""
    layers = between(linear(WIDTH, 32), nn.ReLU(), linear(32, 8))
    return Example(layers, (torch.randn(BATCH, WIDTH),), trains=False, ruled=True)


@model
def int4_linear() -> Example:
    """INT4 weight compression model"""
    return Example(PackedLinear(WIDTH, 8), (torch.randn(BATCH, WIDTH),))
