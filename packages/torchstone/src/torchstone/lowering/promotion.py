"""PyTorch's type promotion for operands of a lowering, and common conversions.

Dtypes come from ``torch.promote_types``. This module adds only the rule that
dimensioned tensors win over 0-d tensors, and 0-d tensors over Python numbers
(https://docs.pytorch.org/docs/stable/tensor_attributes.html).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, hlo
from ..dtypes import FLOAT8, FLOAT8_E8M0FNU, FLOAT32, FLOAT64, HALF, INT64, DType
from ..hlo import Value

_PRECISIONS = {dtypes.FLOAT16: (5, 10), dtypes.BFLOAT16: (8, 7)}
"""Bits of exponent and mantissa."""
_RANK = {"bool": 0, "uint": 1, "int": 1, "float": 2, "complex": 3}


def opmath(dtype: DType) -> DType:
    """The dtype in which PyTorch's CPU kernels compute on ``dtype``: float32 for 16-bit and 8-bit floats.

    float8_e8m0fnu uses float64: its smallest number is subnormal in float32, and XLA would flush it to zero.
    """
    if dtype is FLOAT8_E8M0FNU:
        return FLOAT64
    return FLOAT32 if dtype in HALF | FLOAT8 else dtype


def promote_dtypes(*operands: DType) -> DType:
    """``torch.promote_types`` over any number of dtypes."""
    result = operands[0].torch
    for other in operands[1:]:
        result = torch.promote_types(result, other.torch)
    return dtypes.from_torch(result)


def _number_dtype(number: Any) -> DType:
    if isinstance(number, (bool, torch.SymBool)):
        return dtypes.BOOL
    if isinstance(number, (int, torch.SymInt)):
        return INT64
    if isinstance(number, (float, torch.SymFloat)):
        return dtypes.from_torch(torch.get_default_dtype())
    return dtypes.from_torch(torch.get_default_dtype()).complex


def result_dtype(*operands: Any) -> DType:
    """The dtype that PyTorch promotes values and Python numbers to (``torch.result_type``)."""
    tiers: list[list[DType]] = [[], [], []]
    for operand in operands:
        if not isinstance(operand, Value):
            tiers[2].append(_number_dtype(operand))
        else:
            tiers[0 if operand.rank else 1].append(operand.dtype)
    winner: DType | None = None
    for tier in tiers:
        if not tier:
            continue
        candidate = promote_dtypes(*tier)
        if winner is None:
            winner = candidate
        elif _RANK[candidate.kind] > _RANK[winner.kind]:
            winner = promote_dtypes(winner, candidate)
    if winner is None:
        raise ValueError("result_dtype needs at least one operand")
    return winner


def as_value(operand: Any, dtype: DType) -> Value:
    """Convert a value or a Python (or symbolic) number to a value of ``dtype``; numbers become 0-d.

    Numbers beyond a float8's range become what PyTorch's casts make them.
    """
    if isinstance(operand, Value):
        return hlo.convert(operand, dtype)
    if isinstance(operand, (torch.SymInt, torch.SymFloat)):
        return hlo.convert(hlo.dim_scalar(operand), dtype)
    if isinstance(operand, torch.SymBool):
        return hlo.convert(hlo.condition_scalar(operand), dtype)
    if dtype in FLOAT8:
        operand = torch.tensor(operand).to(dtype.torch).item()
    return hlo.scalar(operand, dtype)


def rounded(operand: Any, dtype: DType) -> Value:
    """``operand`` as eager PyTorch's CPU kernels read it: a value of ``dtype``, in its op-math dtype.

    For a 16-bit ``dtype``, a number or a tensor of another dtype is first rounded to ``dtype``.
    """
    if dtype not in HALF or (isinstance(operand, Value) and operand.dtype is dtype):
        return as_value(operand, opmath(dtype))
    if isinstance(operand, (Value, torch.SymInt, torch.SymFloat, torch.SymBool)):
        # XLA removes pairs of conversions to a narrower dtype and back.
        return hlo.reduce_precision(as_value(operand, opmath(dtype)), *_PRECISIONS[dtype])
    return as_value(torch.tensor(operand).to(dtype.torch).item(), opmath(dtype))


def operands_of(
    operands: Sequence[Any], out: DType, shape: hlo.Shape, unrounded: Sequence[int] = ()
) -> list[Value]:
    """Round the operands of a kernel whose results have dtype ``out``, and broadcast them to ``shape``.

    A number or a 0-d tensor at one of the positions ``unrounded`` is not rounded, as in PyTorch's kernels.
    """
    return [
        hlo.broadcast_to(
            as_value(operand, opmath(out))
            if at in unrounded and not getattr(operand, "rank", 0)
            else rounded(operand, out),
            shape,
        )
        for at, operand in enumerate(operands)
    ]


def broadcast(operands: Sequence[Any], dtype: DType, shape: hlo.Shape | None = None) -> list[Value]:
    """Convert operands to ``dtype`` and broadcast them to their common (or the given) shape."""
    values = [as_value(operand, dtype) for operand in operands]
    target = hlo.broadcast_shapes(*(value.shape for value in values)) if shape is None else shape
    return [hlo.broadcast_to(value, target) for value in values]
