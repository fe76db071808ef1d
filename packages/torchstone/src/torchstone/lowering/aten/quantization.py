"""Quantization: to and from integers, quantized layers in integer arithmetic, and simulated quantization.

Schemas of the operators on integers are in :mod:`..own`; each is a
composite with scale, zero point and axis as attributes. Products are summed in
int32. Only the last step, from the exact sum to the result's integers, is in
floating point, in the order of PyTorch's kernels (FBGEMM's
``requantizeOutputProcessing``, ``fbgemm::Quantize``), so that the integers are equal.

Not here: products of low-precision floats (``scaled_matmul``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from ... import hlo
from ...dtypes import BOOL, EVERY, FLOAT32, FLOAT64, FLOATING, INT8, INT32, UINT8, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of
from ..composites import composed
from ..conditions import ZERO_POINTS
from ..own import own
from ..precise import in_double
from ..registry import Spec, lowers

aten = namespace("aten")

_BYTES = frozenset({INT8, UINT8})
_STORAGE = _BYTES | {INT32}
_NOT_STORAGE = dict.fromkeys(EVERY - _STORAGE, "quantized tensors are stored as int8, uint8 or int32")
_RANGE = {INT8: (-128, 127), UINT8: (0, 255), INT32: (-(2**31), 2**31 - 1)}

Numbers = Sequence[float] | Sequence[int]

quotient = in_double(hlo.divide)
"""Divides float32 by float32 and rounds once. XLA would multiply by a constant's inexact reciprocal."""


def _spread(numbers: Numbers, dtype: DType, shape: hlo.Shape, axis: int) -> Value:
    """Broadcast scales or zero points to ``shape``: one for all, or one per index along ``axis``."""
    if len(numbers) == 1:
        return hlo.full(shape, numbers[0], dtype)
    return hlo.broadcast_in_dim(hlo.constant(list(numbers), dtype), shape, [axis])


def _inverse(scale: Sequence[float]) -> list[float]:
    """``1 / scale`` as PyTorch computes it, in float32."""
    return (numpy.float32(1) / numpy.asarray(scale, numpy.float32)).tolist()


def _float32(*numbers: float) -> numpy.float32:
    """Multiply numbers in float32, after rounding each of them to it."""
    result = numpy.float32(1)
    for number in numbers:
        result = result * numpy.float32(number)
    return result


def _clamped(x: Value, dtype: DType, low: int | None = None) -> Value:
    """Convert whole floats to integers of ``dtype``, clamped to its range; NaN becomes the lower end."""
    lowest, highest = _RANGE[dtype]
    lowest = lowest if low is None else low
    inside = hlo.clamp(float(lowest), x, float(highest))
    made = hlo.convert(hlo.select(hlo.is_nan(x), float(lowest), inside), INT32)
    # float32 cannot represent the largest int32.
    return hlo.convert(hlo.select(x >= 2.0**31, highest, made) if dtype is INT32 else made, dtype)


def _centered(integers: Value, zero_point: Sequence[int], axis: int = 0) -> Value:
    """Subtract their zero points from integers, in int32."""
    wide = hlo.convert(integers, INT32)
    return wide if not any(zero_point) else wide - _spread(zero_point, INT32, wide.shape, axis)


# From and to floating point -----------------------------------------------------------


@lowers(
    own.quantize.default,
    dtypes=frozenset({FLOAT32}),
    gaps=dict.fromkeys(EVERY - {FLOAT32}, "PyTorch quantizes float32"),
    ignores=("dtype",),  # the result has it
)
def quantize(
    self: Value, scale: list[float], zero_point: list[int], axis: int, out: Spec
) -> list[Value | None]:
    """Round ``self / scale + zero_point`` half to even, clamped to the range of the integer type."""

    def kernel(x: Value) -> Value:
        inverse = _spread(_inverse(scale), FLOAT32, x.shape, axis)
        zero = _spread([float(z) for z in zero_point], FLOAT32, x.shape, axis)
        # Rounding to float32 decides ties. For bytes with one scale per tensor it happens once (in a fused
        # multiply-add); per channel and for int32, twice. In float64 the product is exact, so that fusing
        # it with the sum changes nothing.
        scaled = hlo.convert(x, FLOAT64) * hlo.convert(inverse, FLOAT64)
        if axis >= 0 or out.dtype is INT32:
            scaled = hlo.reduce_precision(scaled, 8, 23)  # XLA removes conversions there and back
        near = hlo.convert(scaled + hlo.convert(zero, FLOAT64), FLOAT32)
        return _clamped(hlo.round_nearest_even(near), out.dtype)

    return composed("quantize", [self], kernel, out, _parameters(scale, zero_point, axis))


@lowers(own.dequantize.default, dtypes=_STORAGE, gaps=_NOT_STORAGE)
def dequantize(
    self: Value, scale: list[float], zero_point: list[int], axis: int, out: Spec
) -> list[Value | None]:
    """``(self - zero_point) * scale`` in float32."""

    def kernel(integers: Value) -> Value:
        made = hlo.convert(_centered(integers, zero_point, axis), FLOAT32)
        return made * _spread(scale, FLOAT32, made.shape, axis)

    return composed("dequantize", [self], kernel, out, _parameters(scale, zero_point, axis))


def _parameters(scale: list[float], zero_point: list[int], axis: int) -> dict[str, hlo.Attribute]:
    """The attributes of every quantized composite: numbers per tensor, lists per channel."""
    if axis < 0:
        return {"scale": scale[0], "zero_point": zero_point[0]}
    return {"scale": scale, "zero_point": zero_point, "axis": axis}


# Layers -------------------------------------------------------------------------------


def _requantized(
    total: Value,
    bias: Value | None,
    factor: Sequence[float],
    weight_scale: Sequence[float],
    out: Spec,
    out_scale: float,
    zero_point: int,
    *,
    relu: bool,
    axis: int,
) -> Value:
    """Quantize ``total * scale * weight_scale + bias``; ``factor`` is a list that holds the scale."""
    scales = [float(_float32(*factor, each)) for each in weight_scale]
    multiplier = [float(numpy.float32(each) / numpy.float32(out_scale)) for each in scales]
    x = hlo.convert(total, FLOAT32)
    if bias is not None:
        share = quotient(bias, _spread(scales, FLOAT32, bias.shape, 0))
        x = x + hlo.broadcast_in_dim(share, x.shape, [axis])
    near = hlo.round_nearest_even(x * _spread(multiplier, FLOAT32, x.shape, axis)) + float(zero_point)
    return _clamped(near, out.dtype, zero_point if relu else None)


def _layer(*values: float) -> dict[str, hlo.Attribute]:
    """Return the attributes that all layers share."""
    names = ("scale", "zero_point", "out_scale", "out_zero_point", "relu")
    return dict(zip(names, values, strict=True))


@lowers(own.quantized_linear.default, dtypes=frozenset({UINT8}))
def quantized_linear(
    self: Value,
    scale: float,
    zero_point: int,
    weight: Value,
    weight_scale: list[float],
    weight_zero_point: list[int],
    bias: Value | None,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
    out: Spec,
) -> list[Value | None]:
    """``self @ weight.T + bias`` for quantized matrices; ``relu`` applies a ReLU."""

    def kernel(x: Value, weight: Value, bias: Value | None) -> Value:
        left, right = _centered(x, [zero_point]), _centered(weight, weight_zero_point)
        total = hlo.dot_general(left, right, contract=([x.rank - 1], [1]))
        return _requantized(
            total, bias, [scale], weight_scale, out, out_scale, out_zero_point, relu=relu, axis=x.rank - 1
        )

    attributes = _layer(scale, zero_point, out_scale, out_zero_point, relu)
    attributes |= {"weight_scale": weight_scale, "weight_zero_point": weight_zero_point}
    return composed("quantized_linear", [self, weight, bias], kernel, out, attributes)


@lowers(own.quantized_conv.default, dtypes=frozenset({UINT8}))
def quantized_conv(
    self: Value,
    scale: float,
    zero_point: int,
    weight: Value,
    weight_scale: list[float],
    weight_zero_point: list[int],
    bias: Value | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: int,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
    out: Spec,
) -> list[Value | None]:
    """Convolution of quantized tensors; ``relu`` applies a ReLU."""

    def kernel(x: Value, weight: Value, bias: Value | None) -> Value:
        left, right = _centered(x, [zero_point]), _centered(weight, weight_zero_point)
        total = hlo.convolution(
            left,
            right,
            strides=stride,
            padding=[(each, each) for each in padding],
            rhs_dilation=dilation,
            groups=groups,
        )
        return _requantized(
            total, bias, [scale], weight_scale, out, out_scale, out_zero_point, relu=relu, axis=1
        )

    attributes = _layer(scale, zero_point, out_scale, out_zero_point, relu)
    attributes |= {"weight_scale": weight_scale, "weight_zero_point": weight_zero_point}
    attributes |= {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return composed("quantized_conv", [self, weight, bias], kernel, out, attributes)


@lowers(own.quantized_batch_norm.default, dtypes=_BYTES)
def quantized_batch_norm(
    self: Value,
    scale: float,
    zero_point: int,
    weight: Value,
    bias: Value,
    mean: Value,
    var: Value,
    eps: float,
    out_scale: float,
    out_zero_point: int,
    relu: bool,
    out: Spec,
) -> list[Value | None]:
    """Batch normalization of quantized ``(n, c, …)`` with running statistics; ``relu`` applies a ReLU."""

    def kernel(x: Value, weight: Value, bias: Value, mean: Value, var: Value) -> Value:
        slope = weight / hlo.sqrt(var + eps)
        shift = bias - mean * slope
        factor = slope * float(numpy.float32(scale) / numpy.float32(out_scale))
        offset = quotient(shift, hlo.full_like(shift, float(numpy.float32(out_scale))))
        centered = hlo.convert(_centered(x, [zero_point]), FLOAT32)
        made = centered * hlo.broadcast_in_dim(factor, x.shape, [1])
        near = hlo.round_nearest_even(made + hlo.broadcast_in_dim(offset, x.shape, [1]))
        return _clamped(near + float(out_zero_point), out.dtype, out_zero_point if relu else None)

    attributes = {**_layer(scale, zero_point, out_scale, out_zero_point, relu), "epsilon": eps}
    return composed("quantized_batch_norm", [self, weight, bias, mean, var], kernel, out, attributes)


# Elementwise --------------------------------------------------------------------------


def _pair(scales: Sequence[float], zero_points: Sequence[int], relu: bool) -> dict[str, hlo.Attribute]:
    """Return the attributes of an operator on two tensors; ``scales`` are theirs and that of the result."""
    attributes = _layer(scales[0], zero_points[0], scales[2], zero_points[2], relu)
    return attributes | {"other_scale": scales[1], "other_zero_point": zero_points[1]}


@lowers(own.quantized_add.default, dtypes=_BYTES)
def quantized_add(
    self: Value, other: Value, scales: list[float], zero_points: list[int], relu: bool, out: Spec
) -> list[Value | None]:
    """The sum of quantized tensors; ``relu`` applies a ReLU."""

    def kernel(x: Value, y: Value) -> Value:
        left = hlo.convert(_centered(x, [zero_points[0]]), FLOAT32) * float(numpy.float32(scales[0]))
        right = hlo.convert(_centered(y, [zero_points[1]]), FLOAT32) * float(numpy.float32(scales[1]))
        total = hlo.broadcast_to(left, out.shape) + hlo.broadcast_to(right, out.shape)
        total = hlo.maximum(total, 0.0) if relu else total
        near = hlo.round_nearest_even(total * _inverse([scales[2]])[0]) + float(zero_points[2])
        return _clamped(near, out.dtype)

    return composed("quantized_add", [self, other], kernel, out, _pair(scales, zero_points, relu))


@lowers(own.quantized_mul.default, dtypes=_BYTES)
def quantized_mul(
    self: Value, other: Value, scales: list[float], zero_points: list[int], relu: bool, out: Spec
) -> list[Value | None]:
    """The product of quantized tensors; ``relu`` applies a ReLU."""

    def kernel(x: Value, y: Value) -> Value:
        left = hlo.broadcast_to(_centered(x, [zero_points[0]]), out.shape)
        right = hlo.broadcast_to(_centered(y, [zero_points[1]]), out.shape)
        factor = float(_float32(scales[0], scales[1], _inverse([scales[2]])[0]))
        product = hlo.convert(left * right, FLOAT32) * factor
        near = hlo.round_nearest_even(product) + float(zero_points[2])
        return _clamped(near, out.dtype, zero_points[2] if relu else None)

    return composed("quantized_mul", [self, other], kernel, out, _pair(scales, zero_points, relu))


@lowers(own.quantized_relu.default, dtypes=_STORAGE, gaps=_NOT_STORAGE)
def quantized_relu(self: Value, scale: float, zero_point: int, out: Spec) -> list[Value | None]:
    """The larger of each integer and the zero point."""
    attributes: dict[str, hlo.Attribute] = {"scale": scale, "zero_point": zero_point}
    return composed("quantized_relu", [self], lambda x: hlo.maximum(x, zero_point), out, attributes)


# Simulation ---------------------------------------------------------------------------


def _simulated(x: Value, scale: Value, inverse: Value, zero_point: Value, low: int, high: int) -> list[Value]:
    """Round ``x`` to the grid and convert it back; also return which elements lie within the range."""
    near = hlo.round_nearest_even(x * inverse) + zero_point
    inside = (near >= float(low)) & (near <= float(high))
    near = hlo.select(hlo.is_nan(near), float(low), hlo.clamp(float(low), near, float(high)))
    return [(near - zero_point) * scale, inside]


@lowers(aten.fake_quantize_per_tensor_affine_cachemask.default, dtypes=FLOATING)
def fake_quantize_per_tensor_affine(
    self: Value, scale: float, zero_point: int, quant_min: int, quant_max: int, out: Sequence[Spec]
) -> list[Value | None]:
    """``self`` rounded to the grid of a quantized type, and a mask of the elements within its range."""

    def kernel(x: Value) -> list[Value]:
        step, inverse = float(numpy.float32(scale)), _inverse([scale])[0]
        grid = hlo.full_like(x, step), hlo.full_like(x, inverse), hlo.full_like(x, float(zero_point))
        return _simulated(x, *grid, quant_min, quant_max)

    attributes: dict[str, hlo.Attribute] = {
        "scale": scale,
        "zero_point": zero_point,
        "quant_min": quant_min,
        "quant_max": quant_max,
    }
    return composed("fake_quantize", [self], kernel, out, attributes)


@lowers(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, dtypes=FLOATING)
def fake_quantize_tensor_parameters(
    self: Value,
    scale: Value,
    zero_point: Value,
    fake_quant_enabled: Value,
    quant_min: int,
    quant_max: int,
    out: Sequence[Spec],
) -> list[Value | None]:
    """:func:`fake_quantize_per_tensor_affine` with parameters from tensors, and a switch to turn it off.

    The zero point and the switch are truncated to integers.
    """

    def kernel(x: Value, scale: Value, zero_point: Value, enabled: Value) -> list[Value]:
        step, zero, on = (
            hlo.broadcast_to(hlo.reshape(each, ()), x.shape)
            for each in (
                hlo.convert(scale, x.dtype),
                hlo.convert(hlo.convert(zero_point, INT32), x.dtype),
                hlo.convert(hlo.convert(enabled, INT32), BOOL),
            )
        )
        made, inside = _simulated(x, step, 1.0 / step, zero, quant_min, quant_max)
        return [hlo.select(on, made, x), inside | ~on]

    attributes: dict[str, hlo.Attribute] = {"quant_min": quant_min, "quant_max": quant_max}
    inputs = [self, scale, zero_point, fake_quant_enabled]
    return composed("fake_quantize_by_tensors", inputs, kernel, out, attributes)


@lowers(aten.fake_quantize_per_channel_affine_cachemask.default, dtypes=FLOATING, values=[ZERO_POINTS])
def fake_quantize_per_channel_affine(
    self: Value,
    scale: Value,
    zero_point: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    out: Sequence[Spec],
) -> list[Value | None]:
    """:func:`fake_quantize_per_tensor_affine` with a scale and a zero point for each index along ``axis``."""
    along = axis_of(axis, self.rank)

    def kernel(x: Value, scale: Value, zero_point: Value) -> list[Value]:
        step, zero = (
            hlo.broadcast_in_dim(hlo.convert(each, x.dtype), x.shape, [along]) for each in (scale, zero_point)
        )
        return _simulated(x, step, 1.0 / step, zero, quant_min, quant_max)

    attributes: dict[str, hlo.Attribute] = {"axis": along, "quant_min": quant_min, "quant_max": quant_max}
    return composed("fake_quantize_per_channel", [self, scale, zero_point], kernel, out, attributes)
