"""Makes XLA's CPU compiler compute floating-point arithmetic in the order in which it is written.

XLA's algebraic simplifier treats floats as if their range had no limits:

* it turns a division by one number into a product with its reciprocal, which is 0 for a large number;
* it merges the constants of two products or two sums, and replaces two divisions by one division by a
  product. Each of these may overflow, or lose digits that the separate steps keep;
* it replaces the logarithm of a power, or of a reciprocal root, by a multiple of a logarithm. That is not NaN
  where the power is negative, or the root is that of -0.0.

Optimization barriers prevent this. XLA removes them after the simplifier has run and before fusion, so they
cost nothing at run time.

The simplifier's rules are in xla/hlo/transforms/simplifiers/algebraic_simplifier.cc. Divisions by a square
root get no barrier, because the reciprocal of a square root is never out of range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from . import _jaxlib

ir, stablehlo = _jaxlib.ir, _jaxlib.stablehlo

_LAYOUTS = frozenset(
    f"stablehlo.{name}"
    for name in ("broadcast_in_dim", "dynamic_broadcast_in_dim", "dynamic_reshape", "reshape", "transpose")
)
"""Operations that the simplifier can look through, because they only move elements."""
_REPEATS = frozenset({"stablehlo.broadcast_in_dim", "stablehlo.dynamic_broadcast_in_dim"})
_ROOTS = frozenset({"stablehlo.rsqrt", "stablehlo.sqrt"})
_SCALINGS = frozenset({"stablehlo.divide", "stablehlo.multiply"})
_SUMS = frozenset({"stablehlo.add", "stablehlo.subtract"})
_FARTHEST = 126
"""From this exponent on, a power of two or its reciprocal may be subnormal in float32."""


def keep_arithmetic(module: Any) -> None:
    """Put barriers between operations of a parsed module that the simplifier would merge or replace."""
    kept: dict[Any, Any] = {}
    for op in _jaxlib.operations(module, *_KEPT):
        if _is_float(op.operands[0]):
            for position in _KEPT[op.name](op):
                value = op.operands[position]
                if value not in kept:
                    kept[value] = _barrier(value)
                op.operands[position] = kept[value]


def _barrier(value: Any) -> Any:
    """Return ``value`` behind a barrier, placed right after ``value`` so that all its readers can use it."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        place = ir.InsertionPoint.at_block_begin(owner)
    else:
        place = ir.InsertionPoint.after(owner)
    with place:
        return stablehlo.OptimizationBarrierOp([value]).results[0]


def _is_float(value: Any) -> bool:
    element = ir.ShapedType(value.type).element_type
    return isinstance(element, (ir.FloatType, ir.ComplexType))


# Where values come from ------------------------------------------------------------------


def _source(value: Any) -> Any:
    """Return the value that has the elements of ``value`` before any operations of ``_LAYOUTS``."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in _LAYOUTS:
        value = value.owner.operands[0]
    return value


def _made_by(value: Any) -> Any:
    """Return the operation that computes the elements of ``value``; None for an argument."""
    owner = _source(value).owner
    return None if isinstance(owner, ir.Block) else owner


def _is_made_by(value: Any, *names: str) -> bool:
    owner = _made_by(value)
    return owner is not None and owner.name in names


def _is_constant(value: Any) -> bool:
    return _is_made_by(value, "stablehlo.constant")


def _is_repeated(value: Any) -> bool:
    """Whether ``value`` is a broadcast, or an argument: the caller may pass a broadcast."""
    while not isinstance(value.owner, ir.Block):
        if value.owner.name in _REPEATS:
            return True
        if value.owner.name not in _LAYOUTS:
            return False
        value = value.owner.operands[0]
    return True


def _number(value: Any) -> float | None:
    """Return the real number that all elements of ``value`` equal, if it is such a constant; else None."""
    if not _is_constant(value) or not isinstance(ir.ShapedType(value.type).element_type, ir.FloatType):
        return None
    elements = _made_by(value).attributes["value"]
    if not isinstance(elements, ir.DenseElementsAttr) or not elements.is_splat:
        return None
    return float(elements.get_splat_value().value)


def _power_of_two(value: Any) -> float | None:
    """Return the constant that ``value`` is, if it and its reciprocal are normal powers of two; else None."""
    number = _number(value)
    if number is None:
        return None
    mantissa, exponent = math.frexp(number)
    return number if abs(mantissa) == 0.5 and abs(exponent - 1) < _FARTHEST else None


def _factor(value: Any) -> Any:
    """Return the operation that makes ``value`` if it multiplies by a constant, or divides by a power of two.

    Returns None for any other value.
    """
    owner = _made_by(value)
    if owner is None or owner.name not in _SCALINGS:
        return None
    if owner.name == "stablehlo.divide":
        return None if _power_of_two(owner.operands[1]) is None else owner
    return owner if any(map(_is_constant, owner.operands)) else None


def _adds_constant(value: Any) -> bool:
    """Whether ``value`` is a sum or a difference with a constant."""
    return _is_made_by(value, *_SUMS) and any(map(_is_constant, _made_by(value).operands))


def _exact_factor(value: Any) -> float | None:
    """Return the power of two that ``value`` is explicitly multiplied by; None if there is none."""
    owner = _factor(value)
    if owner is None:
        return None
    if owner.name == "stablehlo.divide":
        return 1.0 / (_power_of_two(owner.operands[1]) or 1.0)
    return next(filter(None, map(_power_of_two, owner.operands)), None)


# What to keep: the operands that need a barrier ------------------------------------------------


def _quotient(op: Any) -> Iterator[int]:
    dividend, divisor = op.operands
    if _is_made_by(dividend, "stablehlo.divide"):
        yield 0
    if isinstance(ir.ShapedType(divisor.type).element_type, ir.ComplexType):
        return
    if _power_of_two(divisor) is None and not _is_made_by(divisor, *_ROOTS):
        yield 1


def _product(op: Any) -> Iterator[int]:
    for position, other in ((0, op.operands[1]), (1, op.operands[0])):
        joined = _is_constant(other) or _is_repeated(other) or _factor(other) is not None
        if joined and _factor(op.operands[position]) is not None:
            yield position
            return


def _sum(op: Any) -> Iterator[int]:
    for position, other in ((0, op.operands[1]), (1, op.operands[0])):
        if _is_constant(other) and _adds_constant(op.operands[position]):
            yield position
            return
    one = _exact_factor(op.operands[0])
    if one is not None and one == _exact_factor(op.operands[1]):
        yield 0


def _logarithm(op: Any) -> Iterator[int]:
    if _is_made_by(op.operands[0], "stablehlo.power", "stablehlo.rsqrt"):
        yield 0


def _root(op: Any) -> Iterator[int]:
    owner = _made_by(op.operands[0])
    if owner is None:
        return
    squared = owner.name == "stablehlo.multiply" and owner.operands[0] == owner.operands[1]
    if squared or (owner.name == "stablehlo.power" and _number(owner.operands[1]) == 2.0):
        yield 0


_KEPT: dict[str, Callable[[Any], Iterator[int]]] = {
    "stablehlo.add": _sum,
    "stablehlo.divide": _quotient,
    "stablehlo.log": _logarithm,
    "stablehlo.multiply": _product,
    "stablehlo.sqrt": _root,
    "stablehlo.subtract": _sum,
}
"""Maps each operation to a function that yields the positions of the operands that need a barrier."""
