"""Keeps XLA's CPU compiler from giving reductions of long rows to YNN, its library of kernels.

YNN reduces the rows of ``(n, m)`` at the speed of memory up to an ``m`` of 16,384, and 25 to 80 times
slower beyond: the sum of 64 × 36,864 float32 takes 14 ms instead of 0.2. XLA's own loops do not slow down
at that size. XLA gives a reduction to YNN if its body is a single operation. So here the body of a reduction
with longer rows gets a second operation, which rounds to the precision that the value already has. That
does not change the result.
"""

from __future__ import annotations

import math
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_LONGEST_ROW = 16_384

_PRECISIONS = {"f32": (8, 23), "bf16": (8, 7), "f16": (5, 10)}
"""Bits of exponent and mantissa of the dtypes that YNN reduces."""


def keep_from_ynn(module: Any) -> None:
    """Rewrite the bodies of reductions with long rows, in a parsed module and its nested regions."""
    for op in _jaxlib.operations(module, "stablehlo.reduce"):
        if _has_long_rows(op):
            (block,) = op.operation.regions[0].blocks
            end = block.operations[len(block.operations) - 1]
            value = end.operands[0]
            bits = _PRECISIONS[str(value.type.element_type)]
            with ir.InsertionPoint(end), op.location:
                end.operation.operands[0] = stablehlo.ReducePrecisionOp(value, *bits).result


def _has_long_rows(op: Any) -> bool:
    if len(op.operands) != 2:
        return False
    operand = ir.RankedTensorType(op.operands[0].type)
    innermost = max(op.attributes["dimensions"], default=operand.rank)
    return (
        str(operand.element_type) in _PRECISIONS
        and operand.has_static_shape
        and math.prod(operand.shape[innermost + 1 :]) > _LONGEST_ROW
    )
