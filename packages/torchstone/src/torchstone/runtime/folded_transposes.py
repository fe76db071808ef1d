"""Removes transposes of matrices in front of products on XLA's CPU.

``nn.Linear`` multiplies with the transpose of its weight. XLA's CPU compiler folds the transpose into the
product if the other operand has several rows. If it has only one row, the compiler copies the whole weight in
every call. Here each product takes the matrix itself and contracts its other axis, which gives the same
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo


def fold(module: Any) -> None:
    """Fold transposes of matrices into the products of a parsed module that have no batch dimensions."""
    for op in _jaxlib.operations(module, "stablehlo.dot_general"):
        numbers = stablehlo.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        left, right = list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions)
        if list(numbers.lhs_batching_dimensions) or len(left) != 1:
            continue
        sides = [_folded(op.operation, place, dims) for place, dims in enumerate((left, right))]
        op.attributes["dot_dimension_numbers"] = stablehlo.DotDimensionNumbers.get([], [], *sides)


def _folded(op: Any, place: int, dims: Sequence[int]) -> Sequence[int]:
    """Remove a transpose of the operand at ``place``; return the operand's dimension to contract."""
    transpose = op.operands[place].owner
    if isinstance(transpose, ir.Block) or transpose.name != "stablehlo.transpose":
        return dims
    if list(transpose.attributes["permutation"]) != [1, 0]:
        return dims
    op.operands[place] = transpose.operands[0]
    if not list(transpose.results[0].uses):
        transpose.operation.erase()
    return [1 - dims[0]]
