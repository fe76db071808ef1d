"""Quantization in exported graphs: the operators ``quantized_decomposed`` that PT2E (torchao) inserts.

They take and give plain integer tensors within a declared range. Not here: PyTorch's
quantized tensors and layers (``quantization``).
"""

from __future__ import annotations

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators

from ... import hlo
from ...dtypes import BFLOAT16, EVERY, FLOAT16, FLOAT32, INT8, INT16, INT32, UINT8
from ...hlo import Value
from ..common import axis_of
from ..composites import Optional, composed
from ..registry import Spec, lowers

decomposed = torch.ops.quantized_decomposed

_INPUTS = frozenset({FLOAT32, FLOAT16, BFLOAT16})
_STORED = frozenset({INT8, UINT8, INT16, INT32})
_NOT_STORED = dict.fromkeys(EVERY - _STORED, "PT2E stores integers of 8, 16 or 32 bits")


def _on_grid(x: Value, inverse: Value, zero_point: Value, low: int, high: int, out: Spec) -> Value:
    near = hlo.round_nearest_even(x * inverse) + zero_point
    return hlo.convert(hlo.clamp(float(low), near, float(high)), out.dtype)


@lowers(
    decomposed.quantize_per_tensor.default,
    dtypes=_INPUTS,
    ignores=("dtype",),  # the result's own
)
def quantize_per_tensor(
    input: Value, scale: float, zero_point: int, quant_min: int, quant_max: int, out: Spec
) -> list[Optional]:
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
    dtypes=_STORED,
    gaps=_NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "out_dtype"),  # the first three are not computed with
)
def dequantize_per_tensor(input: Value, scale: float, zero_point: int, out: Spec) -> list[Optional]:
    """``(input - zero_point) * scale``."""

    def kernel(x: Value) -> Value:
        return (hlo.convert(x, out.dtype) - zero_point) * scale

    attributes: dict[str, hlo.Attribute] = {"scale": scale, "zero_point": zero_point}
    return composed("dequantize_from_range", [input], kernel, out, attributes)


@lowers(
    decomposed.quantize_per_channel.default,
    dtypes=_INPUTS,
    ignores=("dtype",),  # the result's own
)
def quantize_per_channel(
    input: Value,
    scales: Value,
    zero_points: Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    out: Spec,
) -> list[Optional]:
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
    dtypes=_STORED,
    gaps=_NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "out_dtype"),  # the first three are not computed with
)
def dequantize_per_channel(
    input: Value, scales: Value, zero_points: Value | None, axis: int, out: Spec
) -> list[Optional]:
    """:func:`dequantize_per_tensor` with a scale and a zero point for each index along ``axis``."""
    along = axis_of(axis, input.rank)

    def kernel(x: Value, scales: Value, zero_points: Value | None) -> Value:
        wide = hlo.convert(x, scales.dtype)
        if zero_points is not None:
            wide = wide - hlo.broadcast_in_dim(hlo.convert(zero_points, wide.dtype), x.shape, [along])
        return wide * hlo.broadcast_in_dim(scales, x.shape, [along])

    inputs = [input, scales, zero_points]
    return composed("dequantize_channels_from_range", inputs, kernel, out, {"axis": along})
