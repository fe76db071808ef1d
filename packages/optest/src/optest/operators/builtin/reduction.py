"""Reductions: one value out of all elements along some dimensions."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Rounding, Stages, Sums
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from ..domain import ANY, Domain
from .build import (
    BOOL,
    COMPLEX,
    DIMS,
    FLOATS,
    KEEPDIM,
    REAL,
    TypeRule,
    alike,
    axes,
    axis,
    gives,
    need,
    operator,
    reduced,
    same,
    setup,
    sum_type,
)

_OPTIONAL_DIM = AttributeSpec((int, type(None)), None, doc="the dimension to reduce; null for all")


def _shape(shape: Shape, *, dim: Any = None, keepdim: bool = False, **attributes: Any) -> Shape:
    return reduced(shape, axes(dim, len(shape)), keepdim)


def _nonempty_shape(shape: Shape, *, dim: Any = None, keepdim: bool = False, **attributes: Any) -> Shape:
    dims = axes(dim, len(shape))
    need(
        all(shape[one] for one in dims),
        f"there is nothing to choose from along dim {list(dims)} of {list(shape)}",
    )
    return reduced(shape, dims, keepdim)


def _one_dim_shape(shape: Shape, *, dim: int | None, keepdim: bool) -> Shape:
    if dim is None:
        return _nonempty_shape(shape, keepdim=keepdim)
    need(not shape or bool(shape[axis(dim, len(shape))]), f"dim {dim} of {list(shape)} is empty")
    return reduced(shape, axes(dim, len(shape)), keepdim)


def _setups(*, several: bool = True, empty: bool = True, all_dims: bool = True) -> tuple[Setup, ...]:
    """Return setups for a reduction.

    ``several``: it accepts several dimensions. ``empty``: it accepts an empty dimension.
    ``all_dims``: it can reduce everything, without a ``dim``.
    """
    return (
        *((setup((8, 33)), setup((), note="0-d"), setup((1,), note="size 1")) if all_dims else ()),
        *((setup((4, 6), keepdim=True),) if all_dims and several else ()),
        setup((8, 33), dim=1),
        setup((8, 33), dim=0, keepdim=True),
        setup((2, 3, 4, 5), dim=-2),
        setup((3, 1, 4), dim=1, note="size 1"),
        setup((0, 5), dim=1, note="empty"),
        setup((2, 130), dim=-1, keepdim=True, note="long"),
        *((setup((2, 3, 4, 5), dim=[1, 3]), setup((3, 4, 5), dim=[0, -1], keepdim=True)) if several else ()),
        *((setup((5, 0), dim=1, note="empty"),) if empty else ()),
        *(() if all_dims else (setup((6, 7), dim=0), setup((), dim=0, note="0-d"))),
    )


def reduction(
    name: str,
    doc: str,
    dtypes: tuple[str, ...] = FLOATS,
    *,
    setups: tuple[Setup, ...] = _setups(),
    types: TypeRule = same,
    shapes: Any = _shape,
    dim: AttributeSpec = DIMS,
    attributes: dict[str, AttributeSpec] | None = None,
    domain: Domain = ANY,
    tags: tuple[str, ...] = ("edge:nan", "differentiable"),
    rounding: Rounding | None = None,
    torch: str = "",
) -> OperatorDescriptor:
    """Describe a reduction with ``dim`` and ``keepdim``."""
    return operator(
        name,
        "reduction",
        doc,
        dtypes=alike(1, dtypes),
        setups=setups,
        shapes=shapes,
        torch=torch or f"torch.{name}",
        types=types,
        attributes={"dim": dim, **(attributes or {}), "keepdim": KEEPDIM},
        domain={"input0": domain},
        rounding=rounding,
        tags=("reduction", *tags),
    )


_CORRECTION = {"correction": AttributeSpec(int, 1, minimum=0, doc="taken from the count before dividing")}
_VARIANCE_SETUPS = (
    *_setups(empty=False),
    setup((8, 33), dim=1, correction=0),
    setup((4, 9), correction=2, keepdim=True),
)
_FEW_FACTORS = (
    setup((2, 5)),
    setup((), note="0-d"),
    setup((1,), note="size 1"),
    setup((8, 11), dim=1),
    setup((9, 33), dim=0, keepdim=True),
    setup((2, 3, 4, 5), dim=-2),
    setup((3, 1, 4), dim=1, note="size 1"),
    setup((0, 5), dim=1, note="empty"),
    setup((5, 0), dim=1, note="empty"),
)
"""Setups with few factors, so that intermediate products do not overflow float16."""
_PEAK = Domain(low=-20, high=20, integers=True)

OPERATORS = (
    reduction(
        "sum",
        "The sum; integers and bools add up as int64.",
        REAL + BOOL + COMPLEX,
        types=sum_type,
        rounding=Sums(),
    ),
    reduction("mean", "The mean; NaN of nothing.", FLOATS + COMPLEX, rounding=Sums()),
    reduction(
        "prod",
        "The product; integers and bools multiply as int64.",
        REAL + BOOL,
        setups=_FEW_FACTORS,
        types=sum_type,
        dim=_OPTIONAL_DIM,
        domain=Domain(low=-2.7, high=2.7, nonzero=True),
        rounding=Stages(1),
    ),
    reduction(
        "amax",
        "The largest; NaN if there is one.",
        REAL + BOOL,
        setups=_setups(empty=False),
        shapes=_nonempty_shape,
        tags=("edge:nan", "differentiable", "bounded", "exact"),
    ),
    reduction(
        "amin",
        "The smallest; NaN if there is one.",
        REAL + BOOL,
        setups=_setups(empty=False),
        shapes=_nonempty_shape,
        tags=("edge:nan", "differentiable", "bounded", "exact"),
    ),
    reduction(
        "var",
        "The variance, divided by the count − correction.",
        setups=_VARIANCE_SETUPS,
        attributes=_CORRECTION,
    ),
    reduction("std", "The square root of the variance.", setups=_VARIANCE_SETUPS, attributes=_CORRECTION),
    *(
        reduction(
            name,
            f"Where the {kind} is: the first of equal ones, the first NaN if there is one.",
            REAL,
            setups=_setups(several=False, empty=False),
            types=gives("int64"),
            shapes=_one_dim_shape,
            dim=_OPTIONAL_DIM,
            domain=_PEAK,
            tags=("edge:nan", "index"),
        )
        for name, kind in (("argmax", "largest"), ("argmin", "smallest"))
    ),
    reduction(
        "any",
        "Whether one is not zero; NaN is not.",
        (*FLOATS, "int32", "bool"),
        types=gives("bool"),
        domain=Domain(low=0, high=1, integers=True),
        tags=("edge:nan",),
    ),
    reduction(
        "all",
        "Whether none is zero; NaN is not.",
        (*FLOATS, "int32", "bool"),
        types=gives("bool"),
        domain=Domain(low=0, high=1, integers=True),
        tags=("edge:nan",),
    ),
    operator(
        "count_nonzero",
        "reduction",
        "How many are not zero; NaN is not.",
        dtypes=alike(1, (*REAL, "bool")),
        setups=(
            *(one for one in _setups() if "keepdim" not in one.attributes),
            setup((4, 5, 6), dim=2),
            setup((4, 5, 6), dim=[0, 2]),
        ),
        shapes=_shape,
        torch="torch.count_nonzero",
        types=gives("int64"),
        attributes={"dim": DIMS},
        domain={"input0": Domain(low=-1, high=2, integers=True)},
        tags=("reduction", "edge:nan"),
    ),
    reduction(
        "logsumexp",
        "log(sum(exp(x))), without overflow.",
        setups=(*_setups(all_dims=False, empty=False), setup((5, 0), dim=1, note="empty")),
        rounding=Stages(),
        dim=AttributeSpec((int, list), doc="the dimensions to reduce"),
    ),
    reduction(
        "vector_norm",
        "The p-norm: (Σ|x|^ord)^(1/ord), the count of non-zeros for 0, the largest |x| for inf.",
        setups=(
            *_setups(),
            setup((6, 7), ord=1.0),
            setup((6, 7), ord=3.0, dim=1),
            setup((6, 7), ord=0.5, dim=0),
            setup((6, 7), ord=0.0, dim=0),
            setup((6, 7), ord="inf", dim=1),
            setup((6, 7), ord="-inf"),
        ),
        attributes={"ord": AttributeSpec((float, str), 2.0, doc="a number, or the text inf or -inf")},
        torch="torch.linalg.vector_norm",
    ),
)
