"""Capture rules for PyTorch's quantized tensors, operators and modules.

:class:`Quantized` stands in for a quantized tensor. It has the tensor's integers, and
scale and zero point as numbers that are part of the program. Modules with packed weights
are replaced by :class:`_Layer`, whose weights are plain integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.ao.nn import quantized
from torch.ao.nn.intrinsic import quantized as fused
from torch.ao.nn.quantized import dynamic

from ...errors import CaptureError
from ...lowering.own import own
from ..operators.quantized import STORAGE
from .registry import StandIn, capture_rule

Tensor = torch.Tensor


class Quantized(StandIn):
    """A quantized tensor: integers with one scale and zero point, or one of each per index along ``axis``."""

    kind = "quantized"
    is_quantized = True

    def __init__(
        self,
        integers: Tensor,
        scale: Sequence[float],
        zero_point: Sequence[int],
        axis: int,
        dtype: torch.dtype,
    ) -> None:
        self._integers, self._scale, self._zero_point, self._axis = integers, scale, zero_point, axis
        self.dtype, self.shape, self.device = dtype, integers.shape, integers.device

    @property
    def ndim(self) -> int:
        return self._integers.ndim

    def dim(self) -> int:
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def int_repr(self) -> Tensor:
        return self._integers

    def dequantize(self) -> Tensor:
        return own.dequantize(self._integers, self._scale, self._zero_point, self._axis)

    def qscheme(self) -> torch.qscheme:
        return torch.per_tensor_affine if self._axis < 0 else torch.per_channel_affine

    def q_scale(self) -> float:
        return self._one(self._scale)

    def q_zero_point(self) -> int:
        return int(self._one(self._zero_point))

    def q_per_channel_scales(self) -> Tensor:
        return torch.tensor(self._scale, dtype=torch.float64)

    def q_per_channel_zero_points(self) -> Tensor:
        return torch.tensor(self._zero_point)

    def q_per_channel_axis(self) -> int:
        return self._axis

    def _one(self, numbers: Sequence[Any]) -> Any:
        if self._axis >= 0:
            raise RuntimeError("Expected quantizer->qscheme() == kPerTensorAffine to be true, but got false.")
        return numbers[0]

    def parameters(self) -> tuple[float, int]:
        """Return scale and zero point of the whole tensor; raises if the tensor is quantized per channel."""
        return self.q_scale(), self.q_zero_point()

    def mapped(self, integers: Tensor) -> Quantized:
        """Return a tensor of other integers with the same parameters."""
        return Quantized(integers, self._scale, self._zero_point, self._axis, self.dtype)

    def parts(self) -> dict[str, Any]:
        """Return the values that a program returns for this, by name."""
        return {"integers": self._integers, "scale": self._scale, "zero_point": self._zero_point}

    def relu(self) -> Quantized:
        return self.mapped(own.quantized_relu(self._integers, *self.parameters()))


# Operators that move or select elements do the same with the integers, if there is only one scale.
_MOVES = (
    *("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "contiguous", "clone", "detach"),
    *("permute", "transpose", "t", "movedim", "expand", "repeat", "flip"),
    *("narrow", "select", "index_select", "chunk"),
)


def _moving(name: str) -> Any:
    def method(self: Quantized, *args: Any, **kwargs: Any) -> Any:
        self.parameters()
        made = getattr(self._integers, name)(*args, **kwargs)
        return tuple(map(self.mapped, made)) if isinstance(made, tuple) else self.mapped(made)

    return method


for _name in _MOVES:
    setattr(Quantized, _name, _moving(_name))
    for _place in (torch, torch.Tensor):
        if hasattr(_place, _name):

            def _rule(self: Any, *args: Any, _name: str = _name, **kwargs: Any) -> Any:
                return (
                    getattr(self, _name)(*args, **kwargs) if isinstance(self, Quantized) else NotImplemented
                )

            capture_rule(getattr(_place, _name))(_rule)


# From and to floating point -----------------------------------------------------------


def _storage(dtype: torch.dtype) -> torch.dtype:
    try:
        return STORAGE[dtype]
    except KeyError:
        known = ", ".join(str(each).removeprefix("torch.") for each in STORAGE)
        raise CaptureError(f"{dtype} has no capture rule", hint=f"quantized dtypes: {known}") from None


@capture_rule(torch.quantize_per_tensor, of=[own.quantize])
def quantize_per_tensor(input: Tensor, scale: Any, zero_point: Any, dtype: torch.dtype) -> Quantized:
    """Quantize with a scale and zero point that are numbers, or tensors whose values become constants."""
    scale, zero_point = _number(scale), int(_number(zero_point))
    made = own.quantize(input, [scale], [zero_point], -1, _storage(dtype))
    return Quantized(made, [scale], [zero_point], -1, dtype)


@capture_rule(torch.quantize_per_channel, of=[own.quantize])
def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: torch.dtype
) -> Quantized:
    """Quantize with a scale and a zero point for each index along ``axis``, whose values become constants."""
    scale, zero_point = _numbers(scales), [int(each) for each in _numbers(zero_points)]
    made = own.quantize(input, scale, zero_point, axis, _storage(dtype))
    return Quantized(made, scale, zero_point, axis, dtype)


def _number(value: Any) -> float:
    return _numbers(value)[0] if isinstance(value, Tensor) else float(value)


def _numbers(values: Tensor) -> list[float]:
    if type(values) is not Tensor and not isinstance(values, torch.nn.Parameter):
        raise CaptureError(
            "the scale of a quantized tensor is computed by the model, and a program needs its value",
            hint="pass scale and zero point as Python numbers",
        )
    return values.detach().double().flatten().tolist()


@capture_rule(torch.dequantize, torch.Tensor.dequantize, of=[own.dequantize])
def dequantize(self: Any) -> Any:
    """Convert a quantized tensor to floating point."""
    return self.dequantize() if isinstance(self, Quantized) else NotImplemented


@capture_rule(torch.int_repr, torch.Tensor.int_repr)
def int_repr(self: Any) -> Any:
    """Return the integers of a quantized tensor."""
    return self.int_repr() if isinstance(self, Quantized) else NotImplemented


@capture_rule(torch.q_scale)
def q_scale(self: Any) -> Any:
    """Return the scale, a Python number."""
    return self.q_scale() if isinstance(self, Quantized) else NotImplemented


@capture_rule(torch.q_zero_point)
def q_zero_point(self: Any) -> Any:
    """Return the zero point, a Python number."""
    return self.q_zero_point() if isinstance(self, Quantized) else NotImplemented


# Elementwise --------------------------------------------------------------------------


@capture_rule(torch.relu, torch.Tensor.relu, torch.nn.functional.relu, of=[own.quantized_relu])
def relu(input: Any, inplace: bool = False) -> Any:
    """Apply ReLU to a quantized tensor."""
    return input.relu() if isinstance(input, Quantized) else NotImplemented


def _pairwise(name: str, *, relu: bool) -> None:
    operator = getattr(own, f"quantized_{name}")

    def combined(x: Quantized, y: Quantized, scale: float, zero_point: int) -> Quantized:
        scales = [x.q_scale(), y.q_scale(), float(scale)]
        zero_points = [x.q_zero_point(), y.q_zero_point(), int(zero_point)]
        made = operator(x.int_repr(), y.int_repr(), scales, zero_points, relu)
        return Quantized(made, [float(scale)], [int(zero_point)], -1, x.dtype)

    original = getattr(torch.ops.quantized, f"{name}_relu" if relu else name)
    capture_rule(original, original.default, of=[operator])(combined)


for _pair in ("add", "mul"):
    _pairwise(_pair, relu=False)
    _pairwise(_pair, relu=True)


def _normalized(rank: int, *, relu: bool) -> None:
    def batch_norm(
        qx: Quantized,
        weight: Tensor,
        bias: Tensor,
        mean: Tensor,
        var: Tensor,
        eps: float,
        output_scale: float,
        output_zero_point: int,
    ) -> Quantized:
        parameters = (float(output_scale), int(output_zero_point))
        made = own.quantized_batch_norm(
            qx.int_repr(), *qx.parameters(), weight, bias, mean, var, eps, *parameters, relu
        )
        return Quantized(made, [parameters[0]], [parameters[1]], -1, qx.dtype)

    original = getattr(torch.ops.quantized, f"batch_norm{rank}d{'_relu' * relu}", None)
    if original is not None:
        capture_rule(original, original.default, of=[own.quantized_batch_norm])(batch_norm)


for _rank in (2, 3):
    _normalized(_rank, relu=False)
    _normalized(_rank, relu=True)


# Modules ------------------------------------------------------------------------------


@capture_rule(quantized.Quantize, of=[own.quantize])
def quantize_module(module: quantized.Quantize) -> Any:
    """Quantize with scale and zero point from the module's buffers, whose values become constants."""
    scale, zero_point, dtype = float(module.scale), int(module.zero_point), module.dtype
    return lambda x: quantize_per_tensor(x, scale, zero_point, dtype)


@capture_rule(quantized.DeQuantize, of=[own.dequantize])
def dequantize_module(module: quantized.DeQuantize) -> Any:
    """Convert a quantized tensor to floating point."""
    return lambda x: x.dequantize()


class _Weights(torch.nn.Module):
    """The weights of a quantized module as plain integers."""

    weight: Tensor

    def __init__(self, module: Any, *, relu: bool) -> None:
        super().__init__()
        weight = module.weight()
        self.register_buffer("weight", weight.int_repr())
        bias = module.bias()
        self.register_buffer("bias", None if bias is None else bias.detach().float())
        if weight.qscheme() == torch.per_tensor_affine:
            self.scales, self.zeros = [weight.q_scale()], [weight.q_zero_point()]
        else:
            self.scales = weight.q_per_channel_scales().tolist()
            self.zeros = [int(each) for each in weight.q_per_channel_zero_points()]
        self.relu = relu

    def parameters_of_weights(self) -> tuple[Any, ...]:
        """Return weights, their scales and zero points, and bias, in the operators' order of arguments."""
        return self.weight, self.scales, self.zeros, self.bias


class _Layer(_Weights):
    """A quantized linear layer or convolution."""

    def __init__(self, module: Any, *, relu: bool) -> None:
        super().__init__(module, relu=relu)
        self.scale, self.zero_point = float(module.scale), int(module.zero_point)
        self.window: tuple[Any, ...] = ()
        if self.weight.ndim > 2:
            if module.padding_mode != "zeros":
                raise CaptureError(
                    f"a quantized convolution with padding_mode={module.padding_mode!r} has no rule"
                )
            self.window = (*map(list, (module.stride, module.padding, module.dilation)), module.groups)

    def forward(self, x: Any) -> Quantized:
        if not isinstance(x, Quantized):
            raise CaptureError(
                "a quantized layer got a tensor that is not quantized", hint="quantize its input"
            )
        operator = own.quantized_conv if self.window else own.quantized_linear
        weights = (*self.parameters_of_weights(), *self.window)
        made = operator(x.int_repr(), *x.parameters(), *weights, self.scale, self.zero_point, self.relu)
        return Quantized(made, [self.scale], [self.zero_point], -1, x.dtype)


def _layer(kind: type[torch.nn.Module], *, relu: bool) -> None:
    operator = own.quantized_linear if "Linear" in kind.__name__ else own.quantized_conv
    capture_rule(kind, of=[operator])(lambda module: _Layer(module, relu=relu))


for _kind in (quantized.Linear, quantized.Conv1d, quantized.Conv2d, quantized.Conv3d):
    _layer(_kind, relu=False)
for _kind in (fused.LinearReLU, fused.ConvReLU1d, fused.ConvReLU2d, fused.ConvReLU3d):
    _layer(_kind, relu=True)


# Dynamic quantization: floating point in and out, integers within -----------------------


class _DynamicLinear(_Weights):
    """A linear layer that quantizes its input by the input's smallest and largest element."""

    def __init__(self, module: dynamic.Linear, *, relu: bool) -> None:
        super().__init__(module, relu=relu)
        self.reduce_range = module.version is not None and module.version >= 4

    def forward(self, x: Tensor) -> Tensor:
        return own.quantized_linear_dynamic(x, *self.parameters_of_weights(), self.relu, self.reduce_range)


def _dynamic_linear(module: dynamic.Linear, *, relu: bool) -> Any:
    if module.weight().is_quantized:
        return _DynamicLinear(module, relu=relu)
    # 16-bit weights: PyTorch converts them to float32 and multiplies in float32.
    plain = torch.nn.Linear(module.in_features, module.out_features, module.bias() is not None)
    plain.weight = torch.nn.Parameter(module.weight(), requires_grad=False)
    if module.bias() is not None:
        plain.bias = torch.nn.Parameter(module.bias().detach(), requires_grad=False)
    return torch.nn.Sequential(plain, torch.nn.ReLU()) if relu else plain


_DYNAMIC = [own.quantized_linear_dynamic]
capture_rule(dynamic.Linear, of=_DYNAMIC)(lambda module: _dynamic_linear(module, relu=False))
capture_rule(fused.dynamic.LinearReLU, of=_DYNAMIC)(lambda module: _dynamic_linear(module, relu=True))


@capture_rule(dynamic.LSTM, dynamic.GRU, dynamic.LSTMCell, dynamic.GRUCell, dynamic.RNNCell)
def dynamic_recurrent(module: torch.nn.Module) -> Any:
    """Raise :class:`CaptureError`, since PyTorch quantizes each step by its own extremes."""
    raise CaptureError(
        f"{type(module).__name__} with dynamic quantization has no capture rule",
        hint="quantize the linear layers only: quantize_dynamic(model, {torch.nn.Linear})",
    )
