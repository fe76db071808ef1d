"""Transposed matrices read as they lie, in products on XLA's CPU.

``nn.Linear`` multiplies with the transpose of its weight. XLA's CPU compiler folds the transpose into the
product where the other operand has several rows. Where it has one, it copies the whole weight in every call.
Here each product takes the matrix itself and contracts the other axis, which is the same product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo


def fold(module: Any) -> None:
    """Take transposes of matrices out of the products of a parsed module that have no batch."""
    for op in _jaxlib.operations(module, "stablehlo.dot_general"):
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        left, right = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
        if list(numbers.lhs_batching_dimensions) or len(left) != 1:
            continue
        sides = [_folded(op.operation, place, dims) for place, dims in enumerate((left, right))]
        op.attributes["dot_dimension_numbers"] = stablehlo.DotDimensionNumbers.get([], [], *sides)


def _folded(op: Any, place: int, dims: Sequence[int]) -> Sequence[int]:
    """The dimension that the product ``op`` contracts of its operand at ``place``, read as it lies."""
    transpose = op.operands[place].owner
    if isinstance(transpose, ir.Block) or transpose.name != "stablehlo.transpose":
        return dims
    if list(transpose.attributes["permutation"]) != [1, 0]:
        return dims
    op.operands[place] = transpose.operands[0]
    if not list(transpose.results[0].uses):
        transpose.operation.erase()
    return [1 - dims[0]]
