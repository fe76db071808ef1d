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
from itertools import chain
from typing import Any

from . import _jaxlib
from .in_place import SMALLEST, filled_after, has_an_element, number_everywhere

ir = _jaxlib.ir


def make_late(module: Any) -> None:
    """Delay the large buffers of one number that loops of a parsed module begin with."""
    functions = [one.operation for one in module.body.operations if one.operation.name == "func.func"]
    for block in chain.from_iterable(function.regions[0].blocks for function in functions):
        for operation in list(block.operations):
            if operation.operation.name == "stablehlo.while":
                _delay(operation.operation)


def _delay(loop: Any) -> None:
    read = [value for value in dict.fromkeys([*loop.operands, *_captured(loop)]) if _is_computed(value)]
    for place, value in enumerate(loop.operands) if read else ():
        kind, number = ir.RankedTensorType(value.type), number_everywhere(value)
        if number is not None and math.prod(kind.shape) >= SMALLEST:
            with ir.InsertionPoint(loop), loop.location:
                loop.operands[place] = filled_after(read, kind, number)


def _is_computed(value: Any) -> bool:
    """Whether ``value`` has an element to compare and is not the same number everywhere."""
    return number_everywhere(value) is None and has_an_element(value)


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
