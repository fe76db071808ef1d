"""Running results along one dimension."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Rounding, Stages, Sums
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from ..domain import ANY, Domain
from .build import (
    BOOL,
    COMPLEX,
    DIM,
    FLOATS,
    REAL,
    TypeRule,
    alike,
    axis,
    gives,
    need,
    operator,
    same,
    setup,
    sum_type,
)


def _along(shape: Shape, *, dim: int) -> Shape:
    axis(dim, len(shape))
    return shape


def _pair(shape: Shape, *, dim: int) -> tuple[Shape, Shape]:
    return (_along(shape, dim=dim),) * 2


def _diff_shape(shape: Shape, *, n: int, dim: int) -> Shape:
    need(bool(shape), "a scalar has no differences; the input needs one dimension at least")
    dim = axis(dim, len(shape))
    return (*shape[:dim], max(shape[dim] - n, 0), *shape[dim + 1 :])


_SETUPS: tuple[Setup, ...] = (
    setup((4, 7), dim=1),
    setup((4, 7), dim=0),
    setup((2, 3, 5), dim=1),
    setup((2, 3, 4, 3), dim=-1),
    setup((65,), dim=0, note="odd length"),
    setup((3, 1), dim=1, note="size 1"),
    setup((), dim=0, note="0-d"),
    setup((0, 4), dim=1, note="empty"),
    setup((3, 0), dim=1, note="empty"),
)


def _scan(
    name: str,
    doc: str,
    dtypes: tuple[str, ...],
    *,
    types: TypeRule = same,
    outputs: int = 1,
    domain: Domain = ANY,
    setups: tuple[Setup, ...] = _SETUPS,
    shapes: Any = None,
    attributes: dict[str, AttributeSpec] | None = None,
    tags: tuple[str, ...] = (),
    rounding: Rounding | None = None,
) -> OperatorDescriptor:
    return operator(
        name,
        "scan",
        doc,
        dtypes=alike(1, dtypes),
        setups=setups,
        shapes=shapes or (_along if outputs == 1 else _pair),
        torch=f"torch.{name}",
        types=types,
        outputs=outputs,
        attributes=attributes or {"dim": DIM},
        domain={"input0": domain},
        rounding=rounding,
        tags=("scan", "differentiable", "edge:nan", *tags),
    )


_FACTORS = Domain(low=-2.7, high=2.7, nonzero=True)
"""A domain of factors; products of eleven of them stay within float16."""
_TIES = Domain(low=-4, high=4, ties=True)

OPERATORS = (
    _scan(
        "cumsum",
        "Running sums; integers and bools add up as int64.",
        REAL + BOOL + COMPLEX,
        types=sum_type,
        rounding=Sums(),
    ),
    _scan(
        "cumprod",
        "Running products; integers and bools multiply as int64.",
        REAL + BOOL,
        types=sum_type,
        domain=_FACTORS,
        setups=(*(one for one in _SETUPS if one.note != "odd length"), setup((11,), dim=0)),
        rounding=Stages(1),
    ),
    _scan(
        "cummax",
        "The largest so far and where it is, the last of equal ones; NaN stays.",
        REAL,
        types=gives("=", "int64"),
        outputs=2,
        domain=_TIES,
        tags=("bounded", "exact"),
    ),
    _scan(
        "cummin",
        "The smallest so far and where it is, the last of equal ones; NaN stays.",
        REAL,
        types=gives("=", "int64"),
        outputs=2,
        domain=_TIES,
        tags=("bounded", "exact"),
    ),
    _scan("logcumsumexp", "Running log(sum(exp(x))), without overflow.", FLOATS, rounding=Stages()),
    _scan(
        "diff",
        "Differences of neighbours, n times over; integers wrap.",
        REAL,
        setups=(
            setup((4, 7)),
            setup((4, 7), dim=0),
            setup((4, 7), n=2),
            setup((2, 5, 3), dim=1, n=3),
            setup((65,), note="odd length"),
            setup((3, 1), note="size 1"),
            setup((4, 3), n=5, note="nothing left"),
            setup((4, 3), n=0, note="no difference"),
            setup((0, 4), note="empty"),
        ),
        shapes=_diff_shape,
        rounding=Stages(),
        attributes={
            "n": AttributeSpec(int, 1, minimum=0, doc="how often"),
            "dim": AttributeSpec(int, -1, doc=DIM.doc),
        },
    ),
)
