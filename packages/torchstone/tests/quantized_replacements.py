"""Replacements of quantized composites whose calls differ from their operators': PyTorch's quantized ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.ao.quantization.fx._decomposed  # defines the operators

from torchstone.torch_internals.operators import namespace

aten = namespace("aten")
decomposed = torch.ops.quantized_decomposed
own = torch.ops.torchstone

Replacement = Callable[[Sequence[Any], dict[str, Any]], Any]


def result_dtype(attributes: dict[str, Any]) -> torch.dtype:
    """Return the dtype of the first result."""
    dtype: torch.dtype = getattr(torch, attributes["dtypes"][0])
    return dtype


def _grid(attributes: dict[str, Any]) -> tuple[list[float], list[int], int]:
    """Return scales, zero points and axis; single numbers are per tensor."""
    scale, zero_point = attributes["scale"], attributes["zero_point"]
    if "axis" in attributes:
        return scale, zero_point, attributes["axis"]
    return [scale], [zero_point], -1


def _by_overload(overload: Any, *names: str) -> Replacement:
    """Call ``overload`` with the operands, then with attributes by name."""
    return lambda operands, attributes: overload(*operands, *(attributes[name] for name in names))


def _range(operands: Sequence[Any]) -> tuple[int, int, torch.dtype]:
    """Return range and dtype of the first operand's integers, which PyTorch does not compute with."""
    info = torch.iinfo(operands[0].dtype)
    return info.min, info.max, operands[0].dtype


def _dequantize_from_range(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    parameters = a["scale"], a["zero_point"], *_range(operands)
    return decomposed.dequantize_per_tensor.default(operands[0], *parameters, out_dtype=result_dtype(a))


def _dequantize_channels(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    parameters = a["axis"], *_range(operands)
    return decomposed.dequantize_per_channel.default(*operands, *parameters, out_dtype=result_dtype(a))


def _dequantize(overload: Any, *names: str, plain: bool = False) -> Replacement:
    """Pass operands, range, attributes by name and the result's dtype (``plain``: not as a keyword)."""

    def function(operands: Sequence[Any], a: dict[str, Any]) -> Any:
        given = *operands, *_range(operands), *(a[name] for name in names)
        return overload(*given, result_dtype(a)) if plain else overload(*given, out_dtype=result_dtype(a))

    return function


def _quantize(overload: Any, *names: str) -> Replacement:
    """Pass operands, range, the result's dtype and attributes by name."""

    def function(operands: Sequence[Any], a: dict[str, Any]) -> Any:
        bounds = a["quant_min"], a["quant_max"]
        return overload(*operands, *bounds, result_dtype(a), *(a[name] for name in names))

    return function


def _choose_symmetric(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    # Only for unsigned bytes is the zero point in the middle of the range.
    dtype = torch.uint8 if a["zero_point"] else torch.int8
    bounds = a["quant_min"], a["quant_max"]
    return decomposed.choose_qparams_symmetric.tensor(*operands, *bounds, a["epsilon"], dtype)


def _choose(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    dtype = torch.uint8 if a["quant_min"] >= 0 else torch.int8  # PyTorch does not compute with it
    bounds = a["quant_min"], a["quant_max"]
    return decomposed.choose_qparams.tensor(*operands, *bounds, a["epsilon"], dtype)


_RANGE = ("quant_min", "quant_max")
REPLACEMENTS: dict[str, Replacement] = {
    "choose_quantization": _choose,
    "choose_symmetric_quantization": _choose_symmetric,
    "dequantize": lambda operands, a: own.dequantize(operands[0], *_grid(a)),
    "dequantize_channels_from_range": _dequantize_channels,
    "dequantize_from_range": _dequantize_from_range,
    "dequantize_from_range_by_tensors": _dequantize(decomposed.dequantize_per_tensor.tensor),
    "dequantize_groups": _dequantize(
        decomposed.dequantize_per_channel_group.default, "group_size", plain=True
    ),
    "dequantize_tokens": _dequantize(decomposed.dequantize_per_token.default, plain=True),
    "fake_quantize": _by_overload(
        aten.fake_quantize_per_tensor_affine_cachemask.default, "scale", "zero_point", *_RANGE
    ),
    "fake_quantize_by_tensors": _by_overload(
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default, *_RANGE
    ),
    "fake_quantize_per_channel": _by_overload(
        aten.fake_quantize_per_channel_affine_cachemask.default, "axis", *_RANGE
    ),
    "int4_linear": lambda operands, a: aten._weight_int4pack_mm_for_cpu(
        operands[0], operands[1], a["group_size"], operands[2]
    ),
    "pack_int4": lambda operands, _: aten._convert_weight_to_int4pack_for_cpu(operands[0], 1),
    "quantize": lambda operands, a: own.quantize(operands[0], *_grid(a), result_dtype(a)),
    "quantize_channels_to_range": lambda operands, a: decomposed.quantize_per_channel.default(
        *operands, a["axis"], a["quant_min"], a["quant_max"], result_dtype(a)
    ),
    "quantize_groups": _quantize(decomposed.quantize_per_channel_group.default, "group_size"),
    "quantize_to_range": lambda operands, a: decomposed.quantize_per_tensor.default(
        operands[0], a["scale"], a["zero_point"], a["quant_min"], a["quant_max"], result_dtype(a)
    ),
    "quantize_to_range_by_tensors": _quantize(decomposed.quantize_per_tensor.tensor),
    "quantize_tokens": _quantize(decomposed.quantize_per_token.default),
}
