"""Computes ReLUs again for the backward pass, in programs for little memory on XLA's CPU.

The backward pass of a layer reads the layer's input, which is the ReLU of what the layer before computed. XLA
keeps both for the backward pass: it computes the ReLU as part of the mask for the ReLU's gradient, and keeps
it for the product. Here a later product reads a ReLU that is computed when the product's other operand is
there (:mod:`.in_place`), so only what the ReLU is computed from is kept.
"""

from __future__ import annotations

import math
from typing import Any

from . import _jaxlib
from .in_place import PRODUCTS, SMALLEST, filled_after, has_an_element, number_everywhere
from .late_copies import read_instead, source_of

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo


def make_late(module: Any) -> None:
    """Compute large ReLUs in ``@main`` of a parsed module again for all products but the first."""
    read: set[Any] = set()
    for op in list(_jaxlib.main_function(module).entry_block.operations):
        product = op.operation
        if product.name not in PRODUCTS:
            continue
        sources = [source_of(operand) for operand in product.operands]
        for place, (source, moves) in enumerate(sources):
            if source in read and has_an_element(product.operands[1 - place]):
                with ir.InsertionPoint(product), product.location:
                    again = _computed_after(product.operands[1 - place], source)
                    read_instead(product, place, again, moves)
        read |= {source for source, _ in sources if _is_relu(source)}


def _is_relu(value: Any) -> bool:
    """Whether ``value`` is a large maximum of a value and a number."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.maximum":
        return False
    kind = ir.RankedTensorType(value.type)
    is_large = kind.has_static_shape and math.prod(kind.shape) >= SMALLEST
    return is_large and number_everywhere(value.owner.operation.operands[1]) is not None


def _computed_after(other: Any, relu: Any) -> Any:
    """Return what ``relu`` is, computed again after ``other``."""
    x, bound = relu.owner.operation.operands
    number = number_everywhere(bound)
    assert number is not None
    return stablehlo.maximum(x, filled_after([other], ir.RankedTensorType(relu.type), number))
