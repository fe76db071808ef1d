"""Delays the buffers that loops fill until the loops begin, on XLA's CPU.

A loop that writes a row in each step, such as a recurrent layer, begins with buffers of zeros. They depend on
nothing, and XLA's CPU compiler orders operations by what they depend on. So it makes the buffers of all loops
at the beginning of a program, and the last loop's buffers exist all the time. Here a comparison of elements
that the loop reads selects whether the buffer is filled with its own number or with another one. The
comparison is always true, and LLVM removes it (:mod:`.in_place`). But the buffer now comes after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import reduce
from typing import Any

from . import _jaxlib
from .in_place import SMALLEST, always, has_an_element

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo


def make_late(module: Any) -> None:
    """Delay the large buffers of one number that loops of a parsed module begin with."""
    for function in module.body.operations:
        for operation in list(function.operation.regions[0].blocks[0].operations):
            if operation.operation.name == "stablehlo.while":
                _delay(operation.operation)


def _delay(loop: Any) -> None:
    places = [place for place, value in enumerate(loop.operands) if _is_filled(value)]
    read = [value for value in dict.fromkeys([*loop.operands, *_captured(loop)]) if _is_computed(value)]
    if not places or not read:
        return
    with ir.InsertionPoint(loop), loop.location:
        condition = reduce(stablehlo.and_, map(always, read))
        for place in places:
            kind = ir.RankedTensorType(loop.operands[place].type)
            number = loop.operands[place].owner.operation.attributes["value"].get_splat_value().value
            scalar = ir.RankedTensorType.get([], kind.element_type)
            own, other = (_constant(scalar, one) for one in (number, number + 1))
            loop.operands[place] = stablehlo.broadcast_in_dim(
                kind, stablehlo.select(condition, own, other), ir.DenseI64ArrayAttr.get([])
            )


def _is_filled(value: Any) -> bool:
    """Whether ``value`` is a large floating-point constant with the same finite number everywhere."""
    kind = ir.RankedTensorType(value.type)
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.constant":
        return False
    attribute = value.owner.operation.attributes["value"]
    return (
        isinstance(kind.element_type, ir.FloatType)
        and math.prod(kind.shape) >= SMALLEST
        and attribute.is_splat
        and math.isfinite(attribute.get_splat_value().value)
    )


def _is_computed(value: Any) -> bool:
    """Whether ``value`` has an element to compare and is not a constant."""
    is_constant = not isinstance(value.owner, ir.Block) and value.owner.operation.name == "stablehlo.constant"
    return not is_constant and has_an_element(value)


def _captured(loop: Any) -> Iterator[Any]:
    """Yield the values that the regions of ``loop`` use and that are defined in its own block."""
    pending = list(loop.regions)
    while pending:
        for block in pending.pop():
            for operation in block.operations:
                pending += operation.operation.regions
                for operand in operation.operation.operands:
                    owner = operand.owner
                    if (owner if isinstance(owner, ir.Block) else owner.operation.block) == loop.block:
                        yield operand


def _constant(kind: Any, number: float) -> Any:
    value = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, number))
    return stablehlo.ConstantOp(value).result
