"""Operators on the integers of quantized tensors: shape rules and CPU kernels.

A quantized tensor is represented by its integers (int8, uint8 or int32), with scale
and zero point as Python numbers: one of each, or one of each for every index along ``axis``
(−1: per tensor). The CPU kernels call PyTorch's own quantized operators. As in
PyTorch, none is differentiable. Not here: the lowerings (``aten/quantization``),
and the rules that replace PyTorch's calls (``compiler.rules.quantized``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from ...torch_internals.tensors import check, make_per_channel_quantized, make_per_tensor_quantized
from .declaring import implement

Tensor = torch.Tensor
_TYPES = {torch.int8: torch.qint8, torch.uint8: torch.quint8, torch.int32: torch.qint32}
_implement = partial(implement, no_gradient="as in PyTorch, operators on quantized tensors have none")
STORAGE = {quantized: integer for integer, quantized in _TYPES.items()}
"""PyTorch's quantized dtype → the dtype of its integers."""


def _per_tensor(integers: Tensor, scale: float, zero_point: int) -> Tensor:
    return make_per_tensor_quantized(integers, scale, zero_point)


def _tensor(integers: Tensor, scale: Sequence[float], zero_point: Sequence[int], axis: int) -> Tensor:
    """Return PyTorch's quantized tensor of these integers."""
    if axis < 0:
        return _per_tensor(integers, scale[0], zero_point[0])
    scales, zeros = torch.tensor(scale, dtype=torch.float64), torch.tensor(zero_point)
    return make_per_channel_quantized(integers, scales, zeros, axis)


# From and to floating point -----------------------------------------------------------


def _quantize(
    self: Tensor, scale: Sequence[float], zero_point: Sequence[int], axis: int, dtype: torch.dtype
) -> Tensor:
    if axis < 0:
        return torch.quantize_per_tensor(self, scale[0], zero_point[0], _TYPES[dtype]).int_repr()
    scales, zeros = torch.tensor(scale, dtype=torch.float64), torch.tensor(zero_point)
    return torch.quantize_per_channel(self, scales, zeros, axis, _TYPES[dtype]).int_repr()


_implement(
    "quantize",
    _quantize,
    lambda self, scale, zero_point, axis, dtype: torch.empty_like(self, dtype=dtype),
)
_implement(
    "dequantize",
    lambda *given: _tensor(*given).dequantize(),
    lambda self, scale, zero_point, axis: torch.empty_like(self, dtype=torch.float32),
)


# Layers -------------------------------------------------------------------------------


def _linear(
    self: Tensor,
    scale: float,
    zero_point: int,
    weight: Tensor,
    weight_scale: Sequence[float],
    weight_zero_point: Sequence[int],
    bias: Tensor | None,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
) -> Tensor:
    axis = 0 if len(weight_scale) > 1 else -1
    packed = torch.ops.quantized.linear_prepack(_tensor(weight, weight_scale, weight_zero_point, axis), bias)
    run = torch.ops.quantized.linear_relu if relu else torch.ops.quantized.linear
    return run(_per_tensor(self, scale, zero_point), packed, out_scale, out_zero_point).int_repr()


def _conv(
    self: Tensor,
    scale: float,
    zero_point: int,
    weight: Tensor,
    weight_scale: Sequence[float],
    weight_zero_point: Sequence[int],
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
) -> Tensor:
    axis = 0 if len(weight_scale) > 1 else -1
    kernel = _tensor(weight, weight_scale, weight_zero_point, axis)
    name = f"conv{weight.ndim - 2}d"
    prepack = getattr(torch.ops.quantized, f"{name}_prepack")
    packed = prepack(kernel, bias, stride, padding, dilation, groups)
    run = getattr(torch.ops.quantized, f"{name}_relu" if relu else name)
    return run(_per_tensor(self, scale, zero_point), packed, out_scale, out_zero_point).int_repr()


def _conv_shape(self: Tensor, _: float, __: int, weight: Tensor, *options: Any) -> Tensor:
    stride, padding, dilation, groups = options[3:7]
    with torch.device("meta"):
        like = torch.nn.functional.conv2d if weight.ndim == 4 else torch.nn.functional.conv1d
        if weight.ndim == 5:
            like = torch.nn.functional.conv3d
        shape = like(
            torch.empty(self.shape), torch.empty(weight.shape), None, stride, padding, dilation, groups
        ).shape
    return self.new_empty(shape)


def _linear_dynamic(
    self: Tensor,
    weight: Tensor,
    weight_scale: Sequence[float],
    weight_zero_point: Sequence[int],
    bias: Tensor | None,
    relu: bool,
    reduce_range: bool,
) -> Tensor:
    axis = 0 if len(weight_scale) > 1 else -1
    packed = torch.ops.quantized.linear_prepack(_tensor(weight, weight_scale, weight_zero_point, axis), bias)
    run = torch.ops.quantized.linear_relu_dynamic if relu else torch.ops.quantized.linear_dynamic
    return run(self, packed, reduce_range)


def _batch_norm(
    self: Tensor,
    scale: float,
    zero_point: int,
    weight: Tensor,
    bias: Tensor,
    mean: Tensor,
    var: Tensor,
    eps: float,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
) -> Tensor:
    run = getattr(torch.ops.quantized, f"batch_norm{self.ndim - 2}d{'_relu' * relu}")
    quantized = _per_tensor(self, scale, zero_point)
    return run(quantized, weight, bias, mean, var, eps, out_scale, out_zero_point).int_repr()


def _batch_norm_shape(self: Tensor, scale: float, zero_point: int, *parameters: Any) -> Tensor:
    channels = self.shape[1]
    for one in parameters[:4]:
        check(
            one is None or one.shape == (channels,),
            lambda: f"Expected parameters of shape ({channels},), got {tuple(one.shape)}",  # noqa: B023
        )
    return torch.empty_like(self)


_implement(
    "quantized_linear",
    _linear,
    lambda self, _, __, weight, *rest: self.new_empty((*self.shape[:-1], weight.shape[0])),
)
_implement(
    "quantized_linear_dynamic",
    _linear_dynamic,
    lambda self, weight, *rest: self.new_empty((*self.shape[:-1], weight.shape[0])),
)
_implement(
    "quantized_conv",
    _conv,
    _conv_shape,
)
_implement(
    "quantized_batch_norm",
    _batch_norm,
    _batch_norm_shape,
)


# Elementwise --------------------------------------------------------------------------


def _pairwise(name: str) -> None:
    def kernel(
        self: Tensor, other: Tensor, scales: list[float], zero_points: list[int], relu: bool
    ) -> Tensor:
        run = getattr(torch.ops.quantized, f"{name}_relu" if relu else name)
        x, y = map(_per_tensor, (self, other), scales, zero_points)
        return run(x, y, scales[2], zero_points[2]).int_repr()

    _implement(
        f"quantized_{name}",
        kernel,
        lambda self, other, *rest: self.new_empty(torch.broadcast_shapes(self.shape, other.shape)),
    )


_pairwise("add")
_pairwise("mul")
_implement(
    "quantized_relu",
    lambda self, scale, zero_point: torch.relu(_per_tensor(self, scale, zero_point)).int_repr(),
    lambda self, scale, zero_point: torch.empty_like(self),
)
