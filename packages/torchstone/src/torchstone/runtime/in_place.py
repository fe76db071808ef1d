"""Orders in-place updates after all other operations that read the memory which they overwrite.

A program that updates a weight in its own memory (``updates`` of :class:`~.engine.CompileOptions`) also
reads the weight elsewhere. For example, the gradient of a layer's input is a product with the weight, and
nothing says that the product comes before the update. If the order is not fixed, XLA's CPU compiler copies
the weight at the beginning of every call and keeps the copy. It looks at data dependencies only, and removes
optimization barriers before it looks. So here the update is made to depend on each such product: a comparison
of one of the product's elements selects whether the update is written. The comparison is always true. LLVM
finds that out and removes it; what is left at run time is the square root of one number (:func:`always`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

SMALLEST = 1 << 14
"""The smallest number of elements of an argument that is ordered; copies of smaller ones cost nothing."""
_LAYOUTS = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "convert", "reshape", "reverse", "transpose")
)
"""Operations that XLA computes as part of the operation that reads their result."""
PRODUCTS = frozenset({"stablehlo.convolution", "stablehlo.dot_general"})


def order_updates(module: Any) -> None:
    """Make each result that overwrites a large argument of ``@main`` depend on the products with it."""
    function = _jaxlib.main_function(module)
    block = function.entry_block
    end = block.operations[len(block.operations) - 1]
    readers = {
        (argument, place): list(_readers(argument, block))
        for argument, place in _jaxlib.updated_arguments(function)
        if math.prod(ir.RankedTensorType(argument.type).shape) >= SMALLEST
    }
    bits = {product: 1 << place for place, product in enumerate({*chain(*readers.values())})}
    behind = _behind(block, bits)
    for (argument, place), products in readers.items():
        result = end.operands[place]
        late = [product for product in products if not behind.get(result, 0) & bits[product]]
        if late:
            with ir.InsertionPoint(end), end.location:
                written = reduce(stablehlo.and_, map(always, late))
                end.operation.operands[place] = stablehlo.select(written, result, argument)


def _readers(value: Any, block: Any) -> Iterator[Any]:
    """Yield the products and convolutions in ``block`` that read ``value``, directly or in another layout.

    Reads in the body of a loop are left out: nothing outside the loop can depend on a value in its body.
    """
    for use in value.uses:
        operation = use.owner.operation
        if operation.block != block:
            continue
        if operation.name in _LAYOUTS:
            yield from _readers(operation.results[0], block)
        elif operation.name in PRODUCTS and has_an_element(operation.results[0]):
            yield operation.results[0]


def has_an_element(value: Any) -> bool:
    """Whether ``value`` has at least one element, of a floating-point dtype, as :func:`always` needs."""
    kind = ir.RankedTensorType(value.type)
    return kind.has_static_shape and 0 not in kind.shape and isinstance(kind.element_type, ir.FloatType)


def _behind(block: Any, bits: Mapping[Any, int]) -> dict[Any, int]:
    """Return which values in ``bits`` each value of ``block`` depends on or is, as a sum of their bits.

    Values that depend on none of them are left out.
    """
    found: dict[Any, int] = {}
    for operation in block.operations if bits else ():
        before = 0
        for operand in operation.operation.operands:
            before |= found.get(operand, 0)
        for result in operation.operation.results:
            if own := before | bits.get(result, 0):
                found[result] = own
    return found


def always(value: Any) -> Any:
    """Return a boolean that is always true, but depends on the first element ``x`` of ``value``.

    It is ``y == y or y != y`` with the reciprocal square root ``y`` of ``x``; the second part is true if
    ``y`` is NaN. XLA computes the square root on its own, because it is expensive. It would compute a cheap
    function as part of what the boolean decides, and keep all of ``value`` until then.
    """
    kind = ir.RankedTensorType(value.type)
    first = stablehlo.slice(value, [0] * kind.rank, [1] * kind.rank, [1] * kind.rank)
    scalar = stablehlo.rsqrt(stablehlo.reshape(ir.RankedTensorType.get([], kind.element_type), first))
    as_floats = stablehlo.ComparisonTypeAttr.get("FLOAT")
    equal, unequal = (
        stablehlo.compare(scalar, scalar, stablehlo.ComparisonDirectionAttr.get(way), compare_type=as_floats)
        for way in ("EQ", "NE")
    )
    return stablehlo.or_(equal, unequal)


def number_everywhere(value: Any) -> float | None:
    """Return the finite number that all elements of ``value`` are, if it is a floating-point constant."""
    if isinstance(value.owner, ir.Block) or value.owner.operation.name != "stablehlo.constant":
        return None
    if not isinstance(ir.RankedTensorType(value.type).element_type, ir.FloatType):
        return None  # MLIR's bindings cannot read constants of other types, such as complex ones
    attribute = value.owner.operation.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    number = float(attribute.get_splat_value().value)
    return number if math.isfinite(number) else None


def filled_after(values: Sequence[Any], kind: Any, number: float) -> Any:
    """Return a tensor of type ``kind`` with ``number`` everywhere, which depends on each of ``values``."""
    scalar = ir.RankedTensorType.get([], kind.element_type)
    own, other = (
        stablehlo.ConstantOp(
            ir.DenseElementsAttr.get_splat(scalar, ir.FloatAttr.get(kind.element_type, one))
        ).result
        for one in (number, number + 1)
    )
    chosen = stablehlo.select(reduce(stablehlo.and_, map(always, values)), own, other)
    return stablehlo.broadcast_in_dim(kind, chosen, ir.DenseI64ArrayAttr.get([]))
