"""Sorting, selecting by order, and searching in sorted values."""

from __future__ import annotations

from typing import Any

from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape
from ..domain import Domain
from .build import DIM, FLOATS, KEEPDIM, REAL, alike, axes, axis, gives, need, operator, reduced, setup

_TIES = Domain(low=-5, high=5, ties=True)
_DISTINCT = Domain(distinct=True)
_LAST = AttributeSpec(int, -1, doc=DIM.doc)
_RIGHT = AttributeSpec(bool, False, doc="whether equal values go after, not before")
_ORDER = {
    "dim": _LAST,
    "descending": AttributeSpec(bool, False, doc="the largest first"),
    "stable": AttributeSpec(bool, True, doc="whether equal values keep their order"),
}


def _pair(shape: Shape, *, dim: int, **attributes: Any) -> tuple[Shape, Shape]:
    axis(dim, len(shape))
    return shape, shape


def _single(shape: Shape, **attributes: Any) -> Shape:
    return _pair(shape, **attributes)[0]


def _first(shape: Shape) -> Shape:
    return shape


def _topk_shape(shape: Shape, *, k: int, dim: int, **attributes: Any) -> tuple[Shape, Shape]:
    dim = axis(dim, len(shape))
    size = shape[dim] if shape else 1
    need(0 <= k <= size, f"k={k} of {size} elements along dim {dim}")
    found = (*shape[:dim], k, *shape[dim + 1 :]) if shape else ()
    return found, found


def _chosen_shape(shape: Shape, *, dim: int, keepdim: bool, k: int = 1) -> tuple[Shape, Shape]:
    size = shape[axis(dim, len(shape))] if shape else 1
    need(1 <= k <= size, f"k={k} of {size} elements along dim {dim}")
    found = reduced(shape, axes(dim, len(shape)), keepdim)
    return found, found


def _search_shape(ordered: Shape, values: Shape, *, right: bool) -> Shape:
    fits = len(ordered) == 1 or (len(ordered) > 1 and ordered[:-1] == values[:-1])
    need(fits, f"the sorted values {list(ordered)} must be a vector or have the batch of {list(values)}")
    return values


def _bucket_shape(values: Shape, bounds: Shape, *, right: bool) -> Shape:
    need(len(bounds) == 1, f"the boundaries {list(bounds)} must be a vector")
    return values


def _sorting(
    name: str,
    doc: str,
    setups: tuple[Setup, ...],
    shapes: Any,
    *,
    attributes: dict[str, AttributeSpec],
    outputs: int = 2,
    types: Any = None,
    dtypes: tuple[DTypes, ...] | None = None,
    domain: dict[str, Domain] | None = None,
    tags: tuple[str, ...] = (),
    aliases: tuple[str, ...] = (),
) -> OperatorDescriptor:
    return operator(
        name,
        "sorting",
        doc,
        dtypes=dtypes or alike(1, REAL),
        setups=setups,
        shapes=shapes,
        torch=f"torch.{name}",
        types=types or gives("=", "int64"),
        outputs=outputs,
        attributes=attributes,
        domain=domain or {"input0": _DISTINCT},
        tags=tags,
        aliases=aliases,
    )


_ORDERS = (
    setup((33,)),
    setup((4, 17)),
    setup((6, 5), dim=0),
    setup((6, 5), dim=1, descending=True),
    setup((2, 9, 3), dim=1),
    setup((2, 3, 13), dim=-1, descending=True),
    setup((1,), note="size 1"),
    setup((), note="0-d"),
    setup((0, 4), dim=1, note="empty"),
    setup((3, 0), dim=1, note="empty"),
    setup((130,), descending=True, note="long"),
)
_CHOICES = (
    setup((7, 5), dim=0),
    setup((4, 9), dim=1, keepdim=True),
    setup((2, 3, 8), dim=-1),
    setup((2, 5, 3), dim=1),
    setup((33,), dim=0, note="vector"),
    setup((1,), dim=0, note="size 1"),
    setup((), dim=0, note="0-d"),
    setup((0, 4), dim=1, note="empty"),
)

OPERATORS = (
    _sorting(
        "sort",
        "The values in order, and where each was; NaN counts as the largest.",
        _ORDERS,
        _pair,
        attributes=_ORDER,
        domain={"input0": _TIES},
        tags=("edge:nan", "differentiable", "index", "exact"),
    ),
    _sorting(
        "argsort",
        "Where the values in order are; NaN counts as the largest.",
        _ORDERS,
        _single,
        attributes=_ORDER,
        outputs=1,
        types=gives("int64"),
        domain={"input0": _TIES},
        tags=("edge:nan", "index"),
    ),
    _sorting(
        "msort",
        "The values in order along the first dimension.",
        (
            *(setup(*one.shapes.values(), note=one.note) for one in _ORDERS if "dim" not in one.attributes),
            setup((6, 5)),
            setup((2, 9, 3)),
            setup((0, 4), note="empty"),
            setup((3, 0), note="empty"),
        ),
        _first,
        attributes={},
        outputs=1,
        types=gives("="),
        domain={"input0": _TIES},
        tags=("edge:nan", "differentiable", "exact"),
    ),
    _sorting(
        "topk",
        "The k largest or smallest in order, and where they are; no value occurs twice.",
        (
            setup((33,), k=5),
            setup((4, 17), k=3),
            setup((6, 5), k=2, dim=0, largest=False),
            setup((2, 9, 3), k=9, dim=1, note="all"),
            setup((2, 3, 13), k=1, largest=False),
            setup((5, 7), k=0, note="none"),
            setup((1,), k=1, note="size 1"),
            setup((), k=1, note="0-d"),
            setup((0, 4), k=2, dim=1, note="empty"),
        ),
        _topk_shape,
        attributes={
            "k": AttributeSpec(int, minimum=0, doc="how many"),
            "dim": _LAST,
            "largest": AttributeSpec(bool, True, doc="whether the largest"),
            "sorted": AttributeSpec(bool, True, choices=(True,), doc="in order"),
        },
        tags=("differentiable", "index", "exact"),
    ),
    _sorting(
        "kthvalue",
        "The k-th smallest, and where it is; no value occurs twice.",
        tuple(
            setup(*one.shapes.values(), note=one.note, k=k, **one.attributes)
            for one, k in zip(_CHOICES, (2, 9, 1, 3, 17, 1, 1, 2), strict=True)
        ),
        _chosen_shape,
        attributes={
            "k": AttributeSpec(int, minimum=1, doc="which, from 1"),
            "dim": _LAST,
            "keepdim": KEEPDIM,
        },
        tags=("differentiable", "index", "exact"),
    ),
    _sorting(
        "median",
        "The middle value, the lower of two, and where it is; no value occurs twice.",
        _CHOICES,
        _chosen_shape,
        attributes={"dim": DIM, "keepdim": KEEPDIM},
        tags=("differentiable", "index", "exact"),
    ),
    _sorting(
        "searchsorted",
        "Where each of input1 belongs in the sorted input0.",
        (
            setup((9,), (5,)),
            setup((9,), (4, 3), right=True),
            setup((2, 7), (2, 5)),
            setup((2, 7), (2, 5), right=True),
            setup((2, 3, 8), (2, 3, 1)),
            setup((1,), (1,), note="size 1"),
            setup((9,), (), note="0-d"),
            setup((0,), (4,), note="nothing to search"),
            setup((9,), (0,), note="empty"),
            setup((65,), (33,), right=True),
        ),
        _search_shape,
        attributes={"right": _RIGHT},
        outputs=1,
        types=gives("int64"),
        dtypes=alike(2, (*FLOATS, "int32", "int64")),
        domain={"input0": Domain(low=-5, high=5, ties=True, sorted=True), "input1": _TIES},
        aliases=("sorted_sequence", "input"),
    ),
    _sorting(
        "bucketize",
        "Which of the intervals between the sorted input1 each of input0 falls into.",
        (
            setup((5,), (9,)),
            setup((4, 3), (9,), right=True),
            setup((2, 5), (7,)),
            setup((33,), (65,), right=True),
            setup((1,), (1,), note="size 1"),
            setup((), (9,), note="0-d"),
            setup((4,), (0,), note="no boundaries"),
            setup((0,), (9,), note="empty"),
        ),
        _bucket_shape,
        attributes={"right": _RIGHT},
        outputs=1,
        types=gives("int64"),
        dtypes=alike(2, (*FLOATS, "int32", "int64")),
        domain={"input0": _TIES, "input1": Domain(low=-5, high=5, ties=True, sorted=True)},
        aliases=("input", "boundaries"),
    ),
)
