"""Delays copies of kernels for a backward pass until the pass needs them, on XLA's CPU.

The backward pass of a convolution, and of a product with patches, reads the kernel in another order than
the forward pass, so the kernel is copied. The copy depends only on an argument, and XLA's CPU compiler orders
operations by what they depend on. So it makes the copies of all layers at the beginning of a step, and keeps
them until the last layers are done. To prevent this, a comparison of an element of the product's other
operand selects whether the kernel or zeros are copied. The comparison is always true, and LLVM removes it
(:mod:`.in_place`). But the copy now depends on the other operand, and comes after it.

This pass runs after the assignment of layouts, which decides what is copied.
"""

from __future__ import annotations

import math
from typing import Any

from . import _jaxlib
from .in_place import PRODUCTS, SMALLEST, always, has_an_element

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_MOVES = frozenset(f"stablehlo.{name}" for name in ("convert", "reshape", "reverse", "transpose"))
"""Operations that may stand between an argument and the product that reads it."""


def make_late(module: Any) -> None:
    """Delay the copies of large arguments for products in ``@main`` of a parsed module.

    Only the copy of a right operand is delayed, and only if an earlier product reads the same argument.
    An argument that is read once is copied in any case, so a delay would only cost time.
    """
    behind: set[Any] = set()  # products, and what depends on one
    read: set[Any] = set()  # arguments that a product has read
    for op in list(_jaxlib.main_function(module).entry_block.operations):
        operation = op.operation
        if operation.name in PRODUCTS:
            left, right = operation.operands
            source, moves = source_of(right)
            if source in read and left in behind and has_an_element(left) and _is_copied(operation, moves):
                _delay(operation, left, source, moves)
            read |= {one for one, _ in map(source_of, operation.operands) if _is_argument(one)}
        if operation.name in PRODUCTS or any(operand in behind for operand in operation.operands):
            behind.update(operation.results)


def source_of(value: Any) -> tuple[Any, list[Any]]:
    """Return the value that ``value`` was made from by moves of elements, and these, last first."""
    moves = []
    while not _is_argument(value) and value.owner.name in _MOVES:
        moves.append(value.owner.operation)
        value = value.owner.operands[0]
    return value, moves


def _is_argument(value: Any) -> bool:
    return isinstance(value.owner, ir.Block)


def _is_copied(product: Any, moves: list[Any]) -> bool:
    """Whether XLA writes the result of ``moves`` to memory.

    It does not for a transposed matrix in a product, which it reads without a copy.
    """
    names = {move.name for move in moves}
    if product.name == "stablehlo.convolution":
        return bool(names & {"stablehlo.reverse", "stablehlo.transpose"})
    turned = any(
        move.name == "stablehlo.transpose" and len(move.attributes["permutation"]) > 2 for move in moves
    )
    return turned and "stablehlo.reshape" in names


def _delay(product: Any, left: Any, source: Any, moves: list[Any]) -> None:
    """Make the right operand of ``product`` from ``source`` again, so that it depends on ``left``."""
    kind = ir.RankedTensorType(source.type)
    is_large = kind.has_static_shape and math.prod(kind.shape) >= SMALLEST
    if not is_large or not isinstance(kind.element_type, ir.FloatType):
        return
    with ir.InsertionPoint(product), product.location:
        zero = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 0.0))
        value = stablehlo.select(always(left), source, stablehlo.ConstantOp(zero).result)
        read_instead(product, 1, value, moves)


def read_instead(product: Any, place: int, source: Any, moves: list[Any]) -> None:
    """Make the operand of ``product`` at ``place`` from ``source``, by copies of ``moves`` (last first)."""
    for move in reversed(moves):
        made = move.clone()
        made.operands[0] = source
        source = made.results[0]
    product.operands[place] = source
    for move in moves:
        if not list(move.results[0].uses):
            move.erase()
