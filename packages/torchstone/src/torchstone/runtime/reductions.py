"""Reductions that XLA's CPU compiler must not give to YNN, its library of kernels.

YNN reduces the rows of ``(n, m)`` at the speed of memory up to an ``m`` of 16,384, and 25 to 80 times
slower beyond: the sum of 64 × 36,864 float32 takes 14 ms instead of 0.2. XLA's own loops have no such
step. XLA knows a reduction for YNN by its body, one operation. Here the bodies of those with longer
rows round to the precision that they have, which changes nothing else.
"""

from __future__ import annotations

import math
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_LONGEST_ROW = 16_384

_PRECISIONS = {"f32": (8, 23), "bf16": (8, 7), "f16": (5, 10)}
"""Bits of exponent and mantissa of what YNN reduces."""


def keep_from_ynn(module: Any) -> None:
    """Rewrite the bodies of reductions with long rows in a parsed module, those in nested regions too."""
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
