"""Quantization with parameters per token or group: ``quantized_decomposed`` for language models.

A token is the last axis of the activations. A group is a run of elements in a row of a
weight matrix (the layouts of GPTQ and AWQ). Not here: one pair of parameters for a
tensor or a channel (``exported_quantization``), packed weights (``packed_weights``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import DType
from ...hlo import Value
from ..composites import composed
from ..promotion import promote_dtypes
from ..registry import Spec, lowers
from .exported_quantization import NOT_STORED, STORED, decomposed, lowers_to_integers

_FAR = 2.0**40


def _near(x: Value, scales: Value, zero_points: Value, low: int, high: int, out: Spec) -> Value:
    """``round(x / scales + zero_points)`` in the range; per-tensor quantization rounds before it adds."""
    wide = promote_dtypes(x.dtype, scales.dtype)
    inverse = hlo.broadcast_to(1.0 / hlo.convert(scales, wide), x.shape)
    # The limits lie far outside every range. They keep the compiler from fusing the product and the sum into
    # one operation, which would round only once. An optimization barrier would not prevent that, because the
    # compiler looks through it.
    steps = hlo.clamp(-_FAR, hlo.convert(x, wide) * inverse, _FAR)
    zero = hlo.broadcast_to(hlo.convert(zero_points, wide), x.shape)
    near = hlo.round_nearest_even(steps + zero)
    return hlo.convert(hlo.clamp(float(low), near, float(high)), out.dtype)


def _restored(x: Value, scales: Value, zero_points: Value | None, narrow: DType) -> Value:
    """``(x - zero_points) * scales``, with the product rounded to ``narrow``."""
    whole = x
    if zero_points is not None:
        wide = promote_dtypes(x.dtype, zero_points.dtype)
        whole = hlo.convert(x, wide) - hlo.broadcast_to(hlo.convert(zero_points, wide), x.shape)
    wide = promote_dtypes(whole.dtype, scales.dtype)
    made = hlo.convert(whole, wide) * hlo.broadcast_to(hlo.convert(scales, wide), x.shape)
    return hlo.convert(made, narrow)


# Tokens -------------------------------------------------------------------------------


@lowers_to_integers(decomposed.quantize_per_token.default)
def quantize_per_token(
    input: Value, scales: Value, zero_points: Value, quant_min: int, quant_max: int, out: Spec
) -> list[Value | None]:
    """``round(input / scales + zero_points)`` within the range, with parameters for each token."""

    def kernel(x: Value, scales: Value, zero_points: Value) -> Value:
        return _near(x, scales, zero_points, quant_min, quant_max, out)

    attributes: dict[str, hlo.Attribute] = {"quant_min": quant_min, "quant_max": quant_max}
    return composed("quantize_tokens", [input, scales, zero_points], kernel, out, attributes)


@lowers(
    decomposed.dequantize_per_token.default,
    dtypes=STORED,
    gaps=NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "output_dtype"),  # the first three do not affect the result
)
def dequantize_per_token(input: Value, scales: Value, zero_points: Value, out: Spec) -> list[Value | None]:
    """``(input - zero_points) * scales``, with parameters for each token."""

    def kernel(x: Value, scales: Value, zero_points: Value) -> Value:
        return _restored(x, scales, zero_points, out.dtype)

    return composed("dequantize_tokens", [input, scales, zero_points], kernel, out)


# Groups -------------------------------------------------------------------------------


def _groups(x: Value, size: int, scales: Value) -> Value:
    """Split into rows of ``size`` adjacent elements. Rows shorter than a group may have one scale each."""
    width = int(x.shape[-1])
    size = width if size > width and scales.shape[-1] == 1 else size
    return hlo.reshape(x, (hlo.product(x.shape) // size, size))


def _column(x: Value) -> Value:
    return hlo.reshape(x, (hlo.product(x.shape), 1))


@lowers_to_integers(decomposed.quantize_per_channel_group.default)
def quantize_per_channel_group(
    input: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    group_size: int,
    out: Spec,
) -> list[Value | None]:
    """:func:`quantize_per_token` of a matrix, with parameters for each group of a row."""

    def kernel(x: Value, scales: Value, zero_points: Value) -> Value:
        groups = _groups(x, group_size, scales)
        return _near(groups, _column(scales), _column(zero_points), quant_min, quant_max, out)

    attributes: dict[str, hlo.Attribute] = {
        "group_size": group_size,
        "quant_min": quant_min,
        "quant_max": quant_max,
    }
    return composed("quantize_groups", [input, scales, zero_points], kernel, out, attributes)


@lowers(
    decomposed.dequantize_per_channel_group.default,
    dtypes=STORED,
    gaps=NOT_STORED,
    ignores=("quant_min", "quant_max", "dtype", "output_dtype"),  # the first three do not affect the result
)
def dequantize_per_channel_group(
    input: Value, scales: Value, zero_points: Value | None, group_size: int, out: Spec
) -> list[Value | None]:
    """:func:`dequantize_per_token` of a matrix, with parameters for each group of a row."""

    def kernel(x: Value, scales: Value, zero_points: Value | None) -> Value:
        zero = None if zero_points is None else _column(zero_points)
        return _restored(_groups(x, group_size, scales), _column(scales), zero, out.dtype)

    inputs = [input, scales, zero_points]
    return composed("dequantize_groups", inputs, kernel, out, {"group_size": group_size})
