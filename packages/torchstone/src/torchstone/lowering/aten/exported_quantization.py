"""Quantization in exported graphs: the ``quantized_decomposed`` operators that PT2E (torchao) inserts.

They take and return plain integer tensors within a declared range. Parameters are
numbers (static quantization), one-element tensors that the graph computes
(dynamic quantization), or one per channel. Not here: parameters per token
or group (``group_quantization``), PyTorch's quantized tensors and layers (``quantization``).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ... import hlo
from ...dtypes import BFLOAT16, EVERY, FLOAT16, FLOAT32, FLOAT64, INT8, INT16, INT32, UINT8, DType
from ...hlo import Value
from ...torch_internals.decompositions import quantized_decomposed
from ...torch_internals.operators import namespace
from ..common import axis_of
from ..composites import composed
from ..promotion import opmath
from ..registry import Spec, lowers
from .quantization import quotient

quantized_decomposed.get()
decomposed = namespace("quantized_decomposed")

INPUTS = frozenset({FLOAT32, FLOAT16, BFLOAT16})
STORED = frozenset({INT8, UINT8, INT16, INT32})
NOT_QUANTIZED = dict.fromkeys(EVERY - INPUTS, "PT2E quantizes float32, float16 and bfloat16")
NOT_STORED = dict.fromkeys(EVERY - STORED, "PT2E stores integers of 8, 16 or 32 bits")
lowers_to_integers = partial(
    lowers,
    dtypes=INPUTS,
    gaps=NOT_QUANTIZED,
    ignores=("dtype",),  # the result has it
)


# Known or per-channel parameters -------------------------------------------------------


def _on_grid(x: Value, inverse: Value, zero_point: Value, low: int, high: int, out: Spec) -> Value:
    near = hlo.round_nearest_even(x * inverse) + zero_point
    return hlo.convert(hlo.clamp(float(low), near, float(high)), out.dtype)


@lowers_to_integers(decomposed.quantize_per_tensor.default)
def quantize_per_tensor(
    input: Value, scale: float, zero_point: int, quant_min: int, quant_max: int, out: Spec
) -> list[Value | None]:
    """``round(input / scale) + zero_point`` between ``quant_min`` and ``quant_max``."""

    def kernel(x: Value) -> Value:
        inverse, zero = hlo.full_like(x, 1.0 / scale), hlo.full_like(x, float(zero_point))
        return _on_grid(x, inverse, zero, quant_min, quant_max, out)

    attributes: dict[str, hlo.Attribute] = {
        "scale": scale,
        "zero_point": zero_point,
        "quant_min": quant_min,
        "quant_max": quant_max,
    }
    return composed("quantize_to_range", [input], kernel, out, attributes)


@lowers(
    decomposed.dequantize_per_tensor.default,
    dtypes=STORED,
    gaps=NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "out_dtype"),  # the first three do not affect the result
)
def dequantize_per_tensor(input: Value, scale: float, zero_point: int, out: Spec) -> list[Value | None]:
    """``(input - zero_point) * scale``."""

    def kernel(x: Value) -> Value:
        return (hlo.convert(x, out.dtype) - zero_point) * scale

    attributes: dict[str, hlo.Attribute] = {"scale": scale, "zero_point": zero_point}
    return composed("dequantize_from_range", [input], kernel, out, attributes)


@lowers_to_integers(decomposed.quantize_per_channel.default)
def quantize_per_channel(
    input: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int, out: Spec
) -> list[Value | None]:
    """:func:`quantize_per_tensor` with a scale and a zero point for each index along ``axis``."""
    along = axis_of(axis, input.rank)

    def kernel(x: Value, scales: Value, zero_points: Value) -> Value:
        inverse = hlo.broadcast_in_dim(1.0 / hlo.convert(scales, x.dtype), x.shape, [along])
        zero = hlo.broadcast_in_dim(hlo.convert(zero_points, x.dtype), x.shape, [along])
        return _on_grid(x, inverse, zero, quant_min, quant_max, out)

    attributes: dict[str, hlo.Attribute] = {"axis": along, "quant_min": quant_min, "quant_max": quant_max}
    return composed("quantize_channels_to_range", [input, scales, zero_points], kernel, out, attributes)


@lowers(
    decomposed.dequantize_per_channel.default,
    dtypes=STORED,
    gaps=NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "out_dtype"),  # the first three do not affect the result
)
def dequantize_per_channel(
    input: Value, scales: Value, zero_points: Value | None, axis: int, out: Spec
) -> list[Value | None]:
    """:func:`dequantize_per_tensor` with a scale and a zero point for each index along ``axis``."""
    along = axis_of(axis, input.rank)

    def kernel(x: Value, scales: Value, zero_points: Value | None) -> Value:
        wide = hlo.convert(x, scales.dtype)
        if zero_points is not None:
            wide = wide - hlo.broadcast_in_dim(hlo.convert(zero_points, wide.dtype), x.shape, [along])
        return wide * hlo.broadcast_in_dim(scales, x.shape, [along])

    inputs = [input, scales, zero_points]
    return composed("dequantize_channels_from_range", inputs, kernel, out, {"axis": along})


# Parameters that the graph computes ----------------------------------------------------


def _everywhere(number: Value, like: Value) -> Value:
    """Broadcast a one-element tensor to the shape of another, in its own dtype."""
    return hlo.broadcast_to(hlo.reshape(hlo.convert(number, like.dtype), ()), like.shape)


@lowers_to_integers(decomposed.quantize_per_tensor.tensor)
def quantize_by_tensors(
    input: Value, scale: Value, zero_point: Value, quant_min: int, quant_max: int, out: Spec
) -> list[Value | None]:
    """:func:`quantize_per_tensor` with a scale and a zero point from one-element tensors."""

    def kernel(x: Value, scale: Value, zero_point: Value) -> Value:
        x = hlo.convert(x, FLOAT32)  # the scale's dtype
        inverse = _everywhere(1.0 / hlo.convert(scale, FLOAT64), x)
        return _on_grid(x, inverse, _everywhere(zero_point, x), quant_min, quant_max, out)

    attributes: dict[str, hlo.Attribute] = {"quant_min": quant_min, "quant_max": quant_max}
    return composed("quantize_to_range_by_tensors", [input, scale, zero_point], kernel, out, attributes)


@lowers(
    decomposed.dequantize_per_tensor.tensor,
    dtypes=STORED,
    gaps=NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "out_dtype"),  # the first three do not affect the result
)
def dequantize_by_tensors(input: Value, scale: Value, zero_point: Value, out: Spec) -> list[Value | None]:
    """:func:`dequantize_per_tensor` with a scale and a zero point from one-element tensors."""

    def kernel(x: Value, scale: Value, zero_point: Value) -> Value:
        wide = hlo.convert(x, opmath(out.dtype))
        return (wide - _everywhere(zero_point, wide)) * _everywhere(scale, wide)

    return composed("dequantize_from_range_by_tensors", [input, scale, zero_point], kernel, out)


_STEPS = {FLOAT16: (5, 10), BFLOAT16: (8, 7)}
"""The numbers of exponent and mantissa bits of each dtype."""


def _rounded(x: Value, dtype: DType) -> Value:
    """Round a float32 value to ``dtype``."""
    return hlo.reduce_precision(x, *_STEPS[dtype]) if dtype in _STEPS else x


def _extent(x: Value, width: float, eps: float, dtype: DType) -> Value:
    """Return the scale at which ``x`` spans ``width`` steps, but at least ``eps``."""
    return hlo.maximum(_rounded(quotient(x, hlo.full_like(x, width)), dtype), eps)


def _extremes(x: Value) -> tuple[Value, Value]:
    """Return the minimum and the maximum of the elements and zero."""
    axes = list(range(x.rank))
    return hlo.minimum(hlo.reduce_min(x, axes), 0.0), hlo.maximum(hlo.reduce_max(x, axes), 0.0)


@lowers(
    decomposed.choose_qparams.tensor,
    dtypes=INPUTS,
    gaps=NOT_QUANTIZED,
    ignores=("dtype",),  # the range determines it
)
def choose_qparams(
    input: Value, quant_min: int, quant_max: int, eps: float, out: Sequence[Spec]
) -> list[Value | None]:
    """The scale and zero point that map the elements of ``input``, and zero, to the full range."""

    def kernel(x: Value) -> list[Value]:
        low, high = _extremes(x)
        scale = _extent(_rounded(high - low, input.dtype), quant_max - quant_min, eps, input.dtype)
        steps = hlo.convert(hlo.round_nearest_even(low / scale), INT32)
        return [scale, hlo.clamp(quant_min, quant_min - steps, quant_max)]

    attributes: dict[str, hlo.Attribute] = {"quant_min": quant_min, "quant_max": quant_max, "epsilon": eps}
    return composed("choose_quantization", [input], kernel, out, attributes)


@lowers(decomposed.choose_qparams_symmetric.tensor, dtypes=INPUTS, gaps=NOT_QUANTIZED)
def choose_qparams_symmetric(
    input: Value, quant_min: int, quant_max: int, eps: float, dtype: DType, out: Sequence[Spec]
) -> list[Value | None]:
    """The scale at which the largest magnitude in ``input`` spans half of the range."""
    middle = 128 if dtype is UINT8 else 0

    def kernel(x: Value) -> list[Value]:
        low, high = _extremes(x)
        scale = _extent(hlo.maximum(-low, high), (quant_max - quant_min) / 2, eps, input.dtype)
        return [scale, hlo.full((), middle, INT32)]

    attributes: dict[str, hlo.Attribute] = {
        "quant_min": quant_min,
        "quant_max": quant_max,
        "epsilon": eps,
        "zero_point": middle,
    }
    return composed("choose_symmetric_quantization", [input], kernel, out, attributes)
