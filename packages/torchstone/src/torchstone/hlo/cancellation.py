"""Differences of products that are to be exactly zero: ``x − max(x)``, ``x − floor(x)``, ``x − x[:1]``.

Compilers compute a product again where its value is needed, and there they fuse multiplying and
subtracting into one operation with one rounding. So the difference between a product and that product,
rounded and stored, is not zero but the rounding error of the product: of 1e30 more than 1e22, whose
exponential makes a softmax infinite or NaN.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ._mlir import ir, stablehlo

_KEEPING = frozenset(
    f"stablehlo.{name}"
    for name in (
        "abs", "add", "broadcast_in_dim", "ceil", "clamp", "concatenate", "dynamic_broadcast_in_dim",
        "dynamic_gather", "dynamic_pad", "dynamic_reshape", "dynamic_slice", "dynamic_update_slice",
        "floor", "gather", "maximum", "minimum", "negate", "pad", "real_dynamic_slice", "reduce",
        "reduce_window", "reshape", "reverse", "round_nearest_afz", "round_nearest_even", "select",
        "slice", "sort", "subtract", "transpose",
    )
)  # fmt: skip
"""Operations whose results may be elements of their operands, or their negatives: sums may round to one."""
_LAYOUTS = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "negate", "reshape", "reverse", "slice", "transpose")
)
"""Operations between a product and a difference that do not keep them from becoming one operation."""
_PRODUCTS = frozenset({"stablehlo.divide", "stablehlo.multiply", "stablehlo.power"})
"""What ends in a multiplication. Compilers divide by one number with its reciprocal."""
_NEGATE = "stablehlo.negate"
_MOST = 16
"""Values that a search looks at: between a product and what is chosen of it there are few."""


class _Arguments(threading.local):
    """Arguments of the functions under construction that are products where the functions are called."""

    def __init__(self) -> None:
        self.products: set[Any] = set()


_arguments = _Arguments()


@contextmanager
def products(arguments: Iterable[Any]) -> Iterator[None]:
    """Inside, these arguments of a function under construction count as products."""
    before = _arguments.products
    _arguments.products = {*before, *arguments}
    try:
        yield
    finally:
        _arguments.products = before


def is_product(value: Any) -> bool:
    """Whether a compiler may make a subtraction from ``value`` a part of the multiplication that made it."""
    while not isinstance(value.owner, ir.Block):
        owner = value.owner
        if owner.name == "stablehlo.dot_general":
            return _multiplies_alone(owner)
        if owner.name not in _LAYOUTS:
            return owner.name in _PRODUCTS
        value = owner.operands[0]
    return value in _arguments.products


def _multiplies_alone(product: Any) -> bool:
    """Whether a matrix product adds nothing up."""
    numbers = stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    shape = ir.RankedTensorType(product.operands[0].type).shape
    return all(shape[axis] == 1 for axis in numbers.lhs_contracting_dimensions)


def may_cancel(one: Any, other: Any, *, added: bool = False) -> bool:
    """Whether elements of two MLIR values may be the same element of a product.

    If they are to be ``added``, one of them is negated on its way.
    """
    (here, negated), (there, also_negated) = _sources(one), _sources(other)
    return (negated or also_negated or not added) and any(map(is_product, here & there))


def _sources(value: Any) -> tuple[set[Any], bool]:
    """``value`` and the values that its elements may come from, and whether some are negated on the way."""
    found, left, negated = {value}, [value], False
    while left and len(found) < _MOST:
        owner = left.pop().owner
        if isinstance(owner, ir.Block) or owner.name not in _KEEPING or _adds(owner):
            continue
        negated |= owner.name == _NEGATE
        new = [operand for operand in owner.operands if operand not in found]
        found.update(new)
        left += new
    return found, negated


def _adds(operation: Any) -> bool:
    """Whether a reduction makes new values, as a sum does."""
    if operation.name not in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return False
    (block,) = operation.regions[0].blocks
    return any(inner.operation.name in ("stablehlo.add", "stablehlo.multiply") for inner in block)
