"""Differences that are to be exactly zero: ``x − max(x)``, ``x − floor(x)``, ``x − x[:1]``.

Compilers compute a product again where its value is needed, and there they fuse multiplying and
subtracting into one operation with one rounding. So the difference between a product and that product,
rounded and stored, is not zero but the rounding error of the product: of 1e30 more than 1e22, whose
exponential makes a softmax infinite or NaN.
"""

from __future__ import annotations

from typing import Any

from ._mlir import ir

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
_NEGATE = "stablehlo.negate"
_MOST = 16
"""Values that a search looks at: between a product and what is chosen of it there are few."""


def may_cancel(one: Any, other: Any, *, added: bool = False) -> bool:
    """Whether elements of two MLIR values may be the same element of a third one, which is computed.

    If they are to be ``added``, one of them is negated on its way.
    """
    (here, negated), (there, also_negated) = _sources(one), _sources(other)
    if added and not (negated or also_negated):
        return False
    return not here.isdisjoint(there) and any(not _in_memory(value.owner) for value in here & there)


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


def _in_memory(owner: Any) -> bool:
    if isinstance(owner, ir.Block):  # composites and functions in calls become part of their caller
        around = owner.owner.operation
        return around.name != "func.func" or ir.StringAttr(around.attributes["sym_name"]).value == "main"
    return owner.name in ("stablehlo.constant", "stablehlo.reduce", "stablehlo.convolution")
