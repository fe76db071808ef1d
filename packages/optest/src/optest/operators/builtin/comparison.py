"""Comparisons and tests of values; all return bools."""

from __future__ import annotations

from ..descriptor import AttributeSpec, OperatorDescriptor
from ..domain import ANY, Domain
from .build import (
    BINARY_SETUPS,
    BOOL,
    FLOATS,
    REAL,
    UNARY_SETUPS,
    alike,
    broadcast,
    gives,
    identity,
    operator,
    setup,
)

_TIES = Domain(low=-3, high=3, ties=True)


def _comparison(name: str, doc: str, dtypes: tuple[str, ...] = REAL + BOOL) -> OperatorDescriptor:
    return operator(
        name,
        "comparison",
        doc,
        dtypes=alike(2, dtypes),
        setups=BINARY_SETUPS,
        shapes=broadcast,
        torch=f"torch.{name}",
        types=gives("bool"),
        domain={"input0": _TIES, "input1": _TIES},
        tags=("elementwise", "edge:nan"),
    )


def _test(name: str, doc: str) -> OperatorDescriptor:
    return operator(
        name,
        "comparison",
        doc,
        dtypes=alike(1, (*FLOATS, "int32")),
        setups=UNARY_SETUPS,
        shapes=identity,
        torch=f"torch.{name}",
        types=gives("bool"),
        domain={"input0": ANY},
        tags=("elementwise", "edge:nan"),
    )


OPERATORS = (
    _comparison("eq", "Whether both are equal; NaN equals nothing.", (*REAL, *BOOL, "complex64")),
    _comparison("ne", "Whether both differ; NaN differs from everything.", (*REAL, *BOOL, "complex64")),
    _comparison("lt", "Whether input0 is less."),
    _comparison("le", "Whether input0 is less or equal."),
    _comparison("gt", "Whether input0 is greater."),
    _comparison("ge", "Whether input0 is greater or equal."),
    _test("isnan", "Whether a value is NaN."),
    _test("isinf", "Whether a value is an infinity."),
    _test("isfinite", "Whether a value is neither NaN nor an infinity."),
    _test("signbit", "Whether the sign bit is set: that of −0.0 is."),
    operator(
        "isclose",
        "comparison",
        "Whether |input0 − input1| ≤ atol + rtol · |input1|; equal infinities are close.",
        dtypes=alike(2, FLOATS),
        setups=(
            *BINARY_SETUPS,
            setup((16, 8), (16, 8), rtol=0.55),
            setup((16, 8), (16, 8), rtol=0.0, atol=0.4),
            setup((16, 8), (16, 8), equal_nan=True),
            setup((9, 16), (9, 16), equal_nan=True),
        ),
        shapes=broadcast,
        torch="torch.isclose",
        types=gives("bool"),
        attributes={
            "rtol": AttributeSpec(float, 1e-5, minimum=0, doc="relative tolerance"),
            "atol": AttributeSpec(float, 1e-8, minimum=0, doc="absolute tolerance"),
            "equal_nan": AttributeSpec(bool, False, doc="whether NaN is close to NaN"),
        },
        domain={"input0": _TIES, "input1": _TIES},
        tags=("elementwise", "edge:nan"),
    ),
)
