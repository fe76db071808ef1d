"""Elementwise functions of one tensor. Not here: those of several (``arithmetic``), activations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor
from ..domain import ANY, POSITIVE, Domain
from .build import (
    BOOL,
    COMPLEX,
    FLOAT8,
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    UNARY_SETUPS,
    TypeRule,
    alike,
    gives,
    identity,
    operator,
    real_type,
    same,
    setup,
)

DIFFERENTIABLE = ("differentiable",)


def unary(
    name: str,
    doc: str,
    dtypes: tuple[str, ...] = FLOATS,
    domain: Domain = ANY,
    types: TypeRule = same,
    tags: Iterable[str] = DIFFERENTIABLE,
    torch: str = "",
) -> OperatorDescriptor:
    """Describe a function of one tensor without attributes."""
    return operator(
        name,
        "elementwise",
        doc,
        setups=UNARY_SETUPS,
        shapes=identity,
        dtypes=alike(1, dtypes),
        domain={"input0": domain},
        types=types,
        tags=("elementwise", "edge:nan", *tags),
        torch=torch or f"torch.{name}",
    )


def _cast_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    return (attributes["dtype"],)


_LARGE = Domain(wide=True)
"""A domain for rounding functions: their integer results need more bits than narrower formats have."""
_FLOATS_AND_COMPLEX = FLOATS + COMPLEX
_CASTS = (*FLOATS, *FLOAT8, "int8", "uint8", "int32", "int64", "bool", "complex64")

OPERATORS = (
    unary(
        "abs",
        "The absolute value, or modulus; the most negative integer stays itself.",
        NUMBERS,
        types=real_type,
        tags=(*DIFFERENTIABLE, "signed-zero"),
    ),
    unary("neg", "The negative; integers wrap.", NUMBERS, tags=(*DIFFERENTIABLE, "exact", "signed-zero")),
    unary("sign", "−1, 0 or 1; 0 for NaN.", REAL, tags=("bounded", "few-bits", "exact")),
    unary("ceil", "The next integer above.", REAL, _LARGE, tags=("bounded", "exact", "signed-zero")),
    unary("floor", "The next integer below.", REAL, _LARGE, tags=("bounded", "exact", "signed-zero")),
    unary("trunc", "The integer part.", REAL, _LARGE, tags=("bounded", "exact", "signed-zero")),
    unary("frac", "What is left of the integer part, with the sign of the input."),
    unary("square", "The square; integers wrap.", NUMBERS),
    unary(
        "reciprocal",
        "1 / x.",
        _FLOATS_AND_COMPLEX,
        Domain(nonzero=True),
        tags=("differentiable", "division", "signed-zero"),
    ),
    unary(
        "sqrt",
        "The square root; NaN below 0.",
        _FLOATS_AND_COMPLEX,
        POSITIVE,
        tags=(*DIFFERENTIABLE, "signed-zero"),
    ),
    unary("rsqrt", "1 / sqrt(x).", FLOATS, POSITIVE),
    unary("exp", "e to the power of x.", _FLOATS_AND_COMPLEX),
    unary("exp2", "2 to the power of x."),
    unary("expm1", "exp(x) − 1, accurate near 0."),
    unary("log", "The natural logarithm; −inf at 0, NaN below.", _FLOATS_AND_COMPLEX, POSITIVE),
    unary("log2", "The logarithm to base 2.", FLOATS, POSITIVE),
    unary("log10", "The logarithm to base 10.", FLOATS, POSITIVE),
    unary("log1p", "log(1 + x), accurate near 0.", FLOATS, Domain(low=-0.9, high=8.0)),
    unary("sin", "The sine.", _FLOATS_AND_COMPLEX),
    unary("cos", "The cosine.", _FLOATS_AND_COMPLEX),
    unary("tan", "The tangent.", FLOATS, Domain(low=-1.5, high=1.5)),
    unary("asin", "The inverse sine; NaN outside [−1, 1].", FLOATS, Domain(low=-1.0, high=1.0)),
    unary("acos", "The inverse cosine; NaN outside [−1, 1].", FLOATS, Domain(low=-1.0, high=1.0)),
    unary("atan", "The inverse tangent."),
    unary("sinh", "The hyperbolic sine."),
    unary("cosh", "The hyperbolic cosine."),
    unary("asinh", "The inverse hyperbolic sine."),
    unary("acosh", "The inverse hyperbolic cosine; NaN below 1.", FLOATS, Domain(low=1.0, high=20.0)),
    unary("atanh", "The inverse hyperbolic tangent; ±inf at ±1.", FLOATS, Domain(low=-0.99, high=0.99)),
    unary("erf", "The error function."),
    unary("erfc", "1 − erf(x), accurate for large x."),
    unary("lgamma", "The logarithm of |Γ(x)|.", FLOATS, Domain(low=0.05, high=20.0)),
    unary("digamma", "The derivative of lgamma.", FLOATS, Domain(low=0.05, high=20.0)),
    unary(
        "logical_not",
        "True where the input is zero.",
        (*REAL, "bool"),
        Domain(low=-2, high=2, integers=True),
        gives("bool"),
        (),
    ),
    unary("bitwise_not", "Every bit inverted; the logical inverse of bools.", INTEGERS + BOOL, tags=()),
    operator(
        "round",
        "elementwise",
        "The nearest multiple of 10**−decimals, ties to the even one.",
        dtypes=alike(1, FLOATS),
        setups=(*UNARY_SETUPS, setup((6, 11), decimals=-1)),
        shapes=identity,
        torch="torch.round",
        attributes={"decimals": AttributeSpec(int, 0, doc="digits to keep after the point")},
        domain={"input0": _LARGE},
        tags=("elementwise", "edge:nan"),
    ),
    operator(
        "nan_to_num",
        "elementwise",
        "NaN and infinities replaced; null means the largest finite value of the dtype.",
        dtypes=alike(1, FLOATS),
        setups=(
            *UNARY_SETUPS,
            setup((4, 9), nan=2.5),
            setup((4, 9), nan=-1.0, posinf=10.0, neginf=-20.0),
            setup((40,), posinf=3.0),
        ),
        shapes=identity,
        torch="torch.nan_to_num",
        attributes={
            "nan": AttributeSpec((float, type(None)), 0.0, doc="what replaces NaN; null means 0"),
            "posinf": AttributeSpec((float, type(None)), None, doc="what replaces +inf"),
            "neginf": AttributeSpec((float, type(None)), None, doc="what replaces −inf"),
        },
        tags=("elementwise", "edge:nan", "differentiable", "exact"),
    ),
    operator(
        "cast",
        "elementwise",
        "Conversion to another dtype: floats round half to even, integers are truncated or wrap.",
        dtypes=alike(1, (*_CASTS, "int16")),
        setups=(
            setup((8, 17), dtype="float32"),
            setup((8, 17), dtype="float16"),
            setup((8, 17), dtype="bfloat16"),
            setup((5, 7), dtype="float8_e4m3fn"),
            setup((5, 7), dtype="float8_e5m2"),
            setup((5, 7), dtype="int8"),
            setup((5, 7), dtype="uint8"),
            setup((33,), dtype="int64"),
            setup((33,), dtype="bool"),
            setup((3, 4), dtype="complex64"),
            setup((), dtype="float64", note="0-d"),
            setup((0, 2), dtype="int32", note="empty"),
        ),
        shapes=identity,
        torch="torch.Tensor.to",
        types=_cast_type,
        attributes={"dtype": AttributeSpec(str, choices=_CASTS, doc="the dtype of the result")},
        domain={"input0": Domain(low=0, high=100, floats=True)},
        tags=("elementwise", "exact"),
    ),
)
