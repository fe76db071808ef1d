"""Kernels for a backward pass, copied when it needs them, on XLA's CPU.

The backward pass of a convolution, and of a product with patches, reads the kernel in another order than
the forward pass, which is a copy. The copy depends on an argument only, and XLA's CPU compiler orders
operations by what they depend on: it makes the copies of all layers at the beginning of a step and keeps
them until the last layers are done. So here an element of the other operand decides whether the copy is of
the kernel or of zeros. It is always of the kernel, as LLVM finds out (:mod:`.in_place`). The copy then comes
after that operand.

This comes after the assignment of layouts, which decides what is copied.
"""

from __future__ import annotations

import math
from typing import Any

from . import _jaxlib
from .in_place import PRODUCTS, SMALLEST, always, has_an_element

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_MOVES = frozenset(f"stablehlo.{name}" for name in ("convert", "reshape", "reverse", "transpose"))
"""Operations between an argument and the product that reads it."""


def make_late(module: Any) -> None:
    """Order the copies of large arguments for products in ``@main`` of a parsed module.

    Only the right operand is copied late, and only that of an argument that an earlier product reads too.
    Arguments that are read once are copied anyway, and waiting costs time.
    """
    behind: set[Any] = set()  # products, and what depends on one
    read: set[Any] = set()  # arguments that a product has read
    for op in list(_jaxlib.main_function(module).entry_block.operations):
        operation = op.operation
        if operation.name in PRODUCTS:
            left, right = operation.operands
            source, moves = _source(right)
            if source in read and left in behind and has_an_element(left) and _is_copied(operation, moves):
                _delay(operation, left, source, moves)
            read |= {one for one, _ in map(_source, operation.operands) if _is_argument(one)}
        if operation.name in PRODUCTS or any(operand in behind for operand in operation.operands):
            behind.update(operation.results)


def _source(value: Any) -> tuple[Any, list[Any]]:
    """What ``value`` is another form of, and the operations that make the form, last first."""
    moves = []
    while not _is_argument(value) and value.owner.name in _MOVES:
        moves.append(value.owner.operation)
        value = value.owner.operands[0]
    return value, moves


def _is_argument(value: Any) -> bool:
    return isinstance(value.owner, ir.Block)


def _is_copied(product: Any, moves: list[Any]) -> bool:
    """Whether XLA writes what ``moves`` make to memory: a product reads a transposed matrix as it lies."""
    names = {move.name for move in moves}
    if product.name == "stablehlo.convolution":
        return bool(names & {"stablehlo.reverse", "stablehlo.transpose"})
    turned = any(
        move.name == "stablehlo.transpose" and len(move.attributes["permutation"]) > 2 for move in moves
    )
    return turned and "stablehlo.reshape" in names


def _delay(product: Any, left: Any, source: Any, moves: list[Any]) -> None:
    """Make the right operand of ``product`` from ``source`` anew, after an element of ``left``."""
    kind = ir.RankedTensorType(source.type)
    is_large = kind.has_static_shape and math.prod(kind.shape) >= SMALLEST
    if not is_large or not isinstance(kind.element_type, ir.FloatType):
        return
    with ir.InsertionPoint(product), product.location:
        zero = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, 0.0))
        value = stablehlo.select(always(left), source, stablehlo.ConstantOp(zero).result)
        for move in reversed(moves):
            made = move.clone()
            made.operands[0] = value
            value = made.results[0]
    product.operands[1] = value
    for move in moves:
        if not list(move.results[0].uses):
            move.erase()
