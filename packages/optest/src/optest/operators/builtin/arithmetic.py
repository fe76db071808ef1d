"""Elementwise functions of two or three tensors that broadcast, and functions with limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import AttributeMismatch
from ..descriptor import REQUIRED, AttributeSpec, DTypes, OperatorDescriptor, Shape
from ..domain import ANY, NONZERO, Domain
from .build import (
    BINARY_SETUPS,
    BOOL,
    FLOATS,
    INTEGERS,
    MOVED,
    NUMBERS,
    REAL,
    TERNARY_SETUPS,
    WIDE_FLOATS,
    TypeRule,
    alike,
    broadcast,
    gives,
    operator,
    same,
    setup,
)

_ALPHA = AttributeSpec((int, float), 1, doc="the factor of the second input")
_SMALL = Domain(low=-100, high=100)
_NO_ZERO = Domain(low=-100, high=100, nonzero=True)
"""The domain of divisors; with dividends of this size, quotients stay below 2**10.

It also avoids dividing the least integer by −1, whose result is not defined.
"""
_TRUTH = Domain(low=-1, high=1, integers=True)
_SHIFT = Domain(low=0, high=70, integers=True)
_GRADIENT = ("edge:nan", "differentiable")
_DIVISION = ("edge:nan", "division", "differentiable")


def binary(
    name: str,
    doc: str,
    dtypes: tuple[str, ...],
    *,
    left: Domain = ANY,
    right: Domain = ANY,
    types: TypeRule = same,
    attributes: Mapping[str, AttributeSpec] | None = None,
    variants: tuple[dict[str, Any], ...] = (),
    tags: tuple[str, ...] = ("edge:nan",),
    torch: str = "",
) -> OperatorDescriptor:
    """Describe a function of two tensors that broadcast; ``variants`` are attributes for further setups.

    If an attribute is required, the plain setups get the attributes of the first variant.
    """
    required = any(one.default is REQUIRED for one in (attributes or {}).values())
    always = variants[0] if required else {}
    return operator(
        name,
        "elementwise",
        doc,
        dtypes=alike(2, dtypes),
        setups=(
            *(setup(*one.shapes.values(), note=one.note, **always) for one in BINARY_SETUPS),
            *(setup((5, 7), (5, 7), **one) for one in variants),
            *(setup((3, 1, 4), (2, 1), note="broadcast", **one) for one in variants),
        ),
        shapes=broadcast,
        torch=torch or f"torch.{name}",
        types=types,
        attributes=attributes,
        domain={"input0": left, "input1": right},
        tags=("elementwise", *tags),
    )


def _logical(name: str, doc: str) -> OperatorDescriptor:
    return binary(name, doc, (*REAL, *BOOL), left=_TRUTH, right=_TRUTH, types=gives("bool"))


def _left_over(name: str, doc: str) -> OperatorDescriptor:
    """Describe a remainder of a division."""
    return binary(name, doc, REAL, left=_SMALL, right=_NO_ZERO, tags=(*_DIVISION, "bounded"))


def _div_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    return ("float32" if dtypes[0] in INTEGERS else dtypes[0],)


def _clamp_shape(shape: Shape, *, min: Any, max: Any) -> Shape:
    if min is None and max is None:
        raise AttributeMismatch("clamp needs min, max or both; give at least one of them")
    return shape


_LIMIT = AttributeSpec((int, float, type(None)), None, doc="null: no limit on this side")

OPERATORS = (
    binary(
        "add",
        "input0 + alpha · input1; integers wrap.",
        NUMBERS,
        attributes={"alpha": _ALPHA},
        variants=({"alpha": 2}, {"alpha": -4}),
        tags=_GRADIENT,
    ),
    binary(
        "sub",
        "input0 − alpha · input1; integers wrap.",
        NUMBERS,
        attributes={"alpha": _ALPHA},
        variants=({"alpha": 2}, {"alpha": -4}),
        tags=_GRADIENT,
    ),
    binary("mul", "The product; integers wrap.", NUMBERS, tags=(*_GRADIENT, "signed-zero")),
    binary(
        "div",
        "The quotient; integers give float32.",
        REAL,
        left=_SMALL,
        right=_NO_ZERO,
        types=_div_type,
        tags=(*_DIVISION, "signed-zero"),
    ),
    binary(
        "rounded_divide",
        "The quotient, truncated or floored. No narrow floats: they round it to the next integer first.",
        WIDE_FLOATS + INTEGERS,
        left=_SMALL,
        right=_NO_ZERO,
        attributes={
            "rounding_mode": AttributeSpec(str, choices=("trunc", "floor"), doc="how to make it whole")
        },
        variants=({"rounding_mode": "trunc"}, {"rounding_mode": "floor"}),
        tags=("edge:nan-only", "division", "bounded", "few-bits"),
        torch="torch.div",
    ),
    binary(
        "floor_divide",
        "The quotient rounded down. No narrow floats: they round it to the next integer first.",
        WIDE_FLOATS + INTEGERS,
        left=_SMALL,
        right=_NO_ZERO,
        tags=("edge:nan-only", "division", "bounded", "few-bits"),
    ),
    _left_over("remainder", "What flooring division leaves; it has the divisor's sign."),
    _left_over("fmod", "What truncating division leaves; it has the dividend's sign."),
    binary(
        "pow",
        "The power; an integer to a negative power is its inverse, truncated.",
        REAL,
        left=Domain(low=-3, high=4),
        right=Domain(low=-3, high=4, integers=True),
        tags=_GRADIENT,
    ),
    binary("maximum", "The larger one; NaN if either is.", REAL, tags=(*_GRADIENT, "bounded", "exact")),
    binary("minimum", "The smaller one; NaN if either is.", REAL, tags=(*_GRADIENT, "bounded", "exact")),
    binary("fmax", "The larger one; NaN only if both are.", REAL, tags=(*_GRADIENT, "bounded", "exact")),
    binary("fmin", "The smaller one; NaN only if both are.", REAL, tags=(*_GRADIENT, "bounded", "exact")),
    binary(
        "atan2",
        "The angle of the point (input1, input0), in all four quadrants.",
        FLOATS,
        tags=(*_GRADIENT, "signed-zero"),
    ),
    binary("hypot", "sqrt(input0² + input1²).", FLOATS, tags=_GRADIENT),
    binary("logaddexp", "log(exp(input0) + exp(input1)), without overflow.", FLOATS, tags=_GRADIENT),
    binary(
        "copysign",
        "The size of input0 with the sign of input1, that of −0.0 included.",
        FLOATS,
        tags=(*_GRADIENT, "exact", "signed-zero"),
    ),
    binary(
        "gcd",
        "The greatest common divisor; 0 only of two zeros.",
        INTEGERS,
        left=_SMALL,
        right=_SMALL,
        tags=("bounded",),
    ),
    _logical("logical_and", "Whether both are not zero."),
    _logical("logical_or", "Whether one is not zero."),
    _logical("logical_xor", "Whether just one is not zero."),
    binary("bitwise_and", "The bits that both have.", INTEGERS + BOOL, tags=("bounded",)),
    binary("bitwise_or", "The bits that one has.", INTEGERS + BOOL, tags=("bounded",)),
    binary("bitwise_xor", "The bits that just one has.", INTEGERS + BOOL, tags=("bounded",)),
    binary(
        "bitwise_left_shift",
        "Bits moved up; 0 where the distance is the width or more.",
        INTEGERS,
        right=_SHIFT,
        tags=(),
    ),
    binary(
        "bitwise_right_shift",
        "Bits moved down, the sign kept, by any distance.",
        INTEGERS,
        right=_SHIFT,
        tags=("bounded",),
    ),
    operator(
        "where",
        "elementwise",
        "input1 where input0 holds, else input2.",
        dtypes=tuple(("bool", name, name) for name in MOVED),
        setups=TERNARY_SETUPS,
        shapes=broadcast,
        torch="torch.where",
        types=lambda dtypes, attributes: (dtypes[1],),
        tags=("elementwise", "data-movement", "edge:nan", "differentiable", "bounded"),
        aliases=("condition", "input", "other"),
    ),
    operator(
        "clamp",
        "elementwise",
        "Values between min and max; NaN stays, and max wins over min.",
        dtypes=alike(1, REAL),
        setups=(
            setup((8, 33), min=1, max=3),
            setup((2, 3, 4, 5), min=2),
            setup((127,), max=1, note="odd length"),
            setup((3, 1, 7), min=0, max=2),
            setup((31,), min=4, max=2, note="min above max"),
            setup((1,), min=2, note="size 1"),
            setup((), max=1, note="0-d"),
            setup((0, 4), min=1, max=2, note="empty"),
        ),
        shapes=_clamp_shape,
        torch="torch.clamp",
        attributes={"min": _LIMIT, "max": _LIMIT},
        tags=("elementwise", "edge:nan", "differentiable", "bounded", "exact"),
    ),
    operator(
        "lerp",
        "elementwise",
        "input0 + weight · (input1 − input0).",
        dtypes=alike(3, FLOATS),
        setups=TERNARY_SETUPS,
        shapes=broadcast,
        torch="torch.lerp",
        domain={"input2": Domain(low=-0.5, high=1.5)},
        tags=("elementwise", "edge:nan-only", "differentiable"),
        aliases=("input", "end", "weight"),
    ),
    operator(
        "addcmul",
        "elementwise",
        "input0 + value · input1 · input2.",
        dtypes=alike(3, (*FLOATS, "int32", "int64")),
        setups=(*TERNARY_SETUPS, setup((4, 5), (4, 5), (4, 5), value=2), setup((5,), (4, 1), (1,), value=-4)),
        shapes=broadcast,
        torch="torch.addcmul",
        attributes={"value": AttributeSpec((int, float), 1, doc="the factor of the product")},
        tags=("elementwise", "edge:nan", "differentiable"),
    ),
    operator(
        "addcdiv",
        "elementwise",
        "input0 + value · input1 / input2.",
        dtypes=alike(3, FLOATS),
        setups=(
            *TERNARY_SETUPS,
            setup((4, 5), (4, 5), (4, 5), value=2),
            setup((5,), (4, 1), (1,), value=-0.5),
        ),
        shapes=broadcast,
        torch="torch.addcdiv",
        attributes={"value": AttributeSpec((int, float), 1, doc="the factor of the quotient")},
        domain={"input2": NONZERO},
        tags=("elementwise", *_DIVISION),
    ),
)
