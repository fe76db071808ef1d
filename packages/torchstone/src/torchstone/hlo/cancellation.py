"""Finds differences of products that must be exactly zero: ``x − max(x)``, ``x − floor(x)``, ``x − x[:1]``.

Compilers recompute a product where its value is used. If it is used in a subtraction, they fuse both into one
operation with one rounding. Then the difference between a product and its stored, rounded value is not zero
but the rounding error of the product. For a product of 1e30, this error exceeds 1e22, and its exponential
makes a softmax infinite or NaN.
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
"""Operations whose results may be elements of their operands, or the negatives of such elements.

Sums are among them, because they may be rounded to one of their terms.
"""
_LAYOUTS = frozenset(
    f"stablehlo.{name}" for name in ("broadcast_in_dim", "negate", "reshape", "reverse", "slice", "transpose")
)
"""Operations that do not prevent fusion if they lie between a product and a difference."""
_PRODUCTS = frozenset({"stablehlo.divide", "stablehlo.multiply", "stablehlo.power"})
"""Operations that end in a multiplication. Compilers multiply by the reciprocal to divide by one number."""
_NEGATE = "stablehlo.negate"
_MOST = 16
"""The maximum number of values that a search visits; only a few lie between a product and its elements."""


class _Arguments(threading.local):
    """Arguments of functions under construction that are products where the functions are called."""

    def __init__(self) -> None:
        self.products: set[Any] = set()


_arguments = _Arguments()


@contextmanager
def products(arguments: Iterable[Any]) -> Iterator[None]:
    """Treat these arguments of a function under construction as products inside the block."""
    before = _arguments.products
    _arguments.products = {*before, *arguments}
    try:
        yield
    finally:
        _arguments.products = before


def is_product(value: Any) -> bool:
    """Whether ``value`` comes from a multiplication that a compiler may fuse with a subtraction."""
    while not isinstance(value.owner, ir.Block):
        owner = value.owner
        if owner.name == "stablehlo.dot_general":
            return _multiplies_alone(owner)
        if owner.name not in _LAYOUTS:
            return owner.name in _PRODUCTS
        value = owner.operands[0]
    return value in _arguments.products


def _multiplies_alone(product: Any) -> bool:
    """Whether a matrix product only multiplies: the axes that it sums over have size 1."""
    numbers = stablehlo.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    shape = ir.RankedTensorType(product.operands[0].type).shape
    return all(shape[axis] == 1 for axis in numbers.lhs_contracting_dimensions)


def may_cancel(one: Any, other: Any, *, added: bool = False) -> bool:
    """Whether elements of two MLIR values may be the same element of a product, and so cancel.

    If the values are ``added``, they cancel only if one of them is negated on the way.
    """
    (here, negated), (there, also_negated) = _sources(one), _sources(other)
    return (negated or also_negated or not added) and any(map(is_product, here & there))


def _sources(value: Any) -> tuple[set[Any], bool]:
    """Return the values that elements of ``value`` may come from, and whether any is negated on the way.

    ``value`` itself is one of them.
    """
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
    """Whether an operation is a reduction that makes new values, such as a sum."""
    if operation.name not in ("stablehlo.reduce", "stablehlo.reduce_window"):
        return False
    (block,) = operation.regions[0].blocks
    return any(inner.operation.name in ("stablehlo.add", "stablehlo.multiply") for inner in block)
