"""Gathering, scattering and filling by index or mask. Indices are int64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.roundoff import Rounding, Stages, Sums
from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape
from ..domain import Domain
from .build import BOOL, DIM, FLOATS, MOVED, REAL, axis, broadcast, need, operator, setup

_INDEX = Domain(indices_of=("input0", "dim"))


def _with_index(names: tuple[str, ...], values: int) -> tuple[DTypes, ...]:
    """Return dtype tuples of a tensor, an int64 index, and ``values`` more tensors of the first dtype."""
    return tuple((name, "int64", *(name,) * values) for name in names)


def _indexing(
    name: str,
    doc: str,
    dtypes: tuple[DTypes, ...],
    setups: tuple[Setup, ...],
    shapes: Any,
    *,
    attributes: Mapping[str, AttributeSpec] | None = None,
    domain: Mapping[str, Domain] | None = None,
    aliases: tuple[str, ...] = ("input", "index", "src"),
    tags: tuple[str, ...] = ("data-movement",),
    rounding: Rounding | None = None,
    torch: str = "",
) -> OperatorDescriptor:
    return operator(
        name,
        "indexing",
        doc,
        dtypes=dtypes,
        setups=setups,
        shapes=shapes,
        torch=torch or f"torch.{name}",
        attributes=attributes,
        domain=domain if domain is not None else {"input1": _INDEX},
        rounding=rounding,
        tags=("index", "differentiable", *tags),
        aliases=aliases,
    )


def _within(index: Shape, limit: Shape, dim: int | None, what: str) -> None:
    need(
        len(index) == len(limit), f"the index {list(index)} and the {what} {list(limit)} must have equal rank"
    )
    fits = all(i == dim or size <= limit[i] for i, size in enumerate(index))
    need(fits, f"the index {list(index)} is larger than the {what} {list(limit)}")


def _gather_shape(inputs: Shape, index: Shape, *, dim: int) -> Shape:
    _within(index, inputs, axis(dim, len(inputs)), "input")
    return index


def _along_shape(inputs: Shape, index: Shape, *, dim: int) -> Shape:
    need(
        len(index) == len(inputs),
        f"the index {list(index)} and the input {list(inputs)} must have equal rank",
    )
    dim = axis(dim, len(inputs))
    around = broadcast(inputs[:dim] + inputs[dim + 1 :], index[:dim] + index[dim + 1 :])
    return (*around[:dim], index[dim], *around[dim:])


def _scatter_shape(inputs: Shape, index: Shape, source: Shape, *, dim: int, **attributes: Any) -> Shape:
    _within(index, inputs, axis(dim, len(inputs)), "input")
    _within(index, source, None, "source")
    return inputs


def _select_shape(inputs: Shape, index: Shape, *, dim: int, **attributes: Any) -> Shape:
    need(len(index) == 1, f"the index {list(index)} must be a vector")
    dim = axis(dim, len(inputs))
    return (*inputs[:dim], index[0], *inputs[dim + 1 :])


def _fill_shape(inputs: Shape, index: Shape, **attributes: Any) -> Shape:
    _select_shape(inputs, index, dim=attributes["dim"])
    return inputs


def _update_shape(inputs: Shape, index: Shape, source: Shape, *, dim: int, **attributes: Any) -> Shape:
    wanted = _select_shape(inputs, index, dim=dim)
    need(source == wanted, f"the source {list(source)} must be {list(wanted)}")
    return inputs


def _index_shape(inputs: Shape, first: Shape, second: Shape) -> Shape:
    need(len(inputs) >= 2, f"{list(inputs)} has no two dimensions to index")
    return broadcast(first, second) + inputs[2:]


def _put_shape(inputs: Shape, first: Shape, second: Shape, values: Shape, *, accumulate: bool) -> Shape:
    place = _index_shape(inputs, first, second)
    need(broadcast(values, place) == place, f"values of {list(values)} do not expand to {list(place)}")
    return inputs


_SCATTERS = (
    setup((4, 5), (3, 5), (3, 5), dim=0),
    setup((4, 9), (4, 6), (4, 6), dim=1),
    setup((4, 5), (2, 3), (3, 4), dim=0, note="smaller index"),
    setup((2, 3, 6), (2, 3, 4), (2, 3, 4), dim=-1),
    setup((2, 7, 3), (1, 5, 3), (2, 5, 3), dim=1),
    setup((33,), (20,), (20,), dim=0, note="vector"),
    setup((1,), (1,), (1,), dim=0, note="size 1"),
    setup((4, 5), (0, 5), (0, 5), dim=0, note="empty index"),
    setup((0, 5), (0, 3), (0, 3), dim=1, note="empty"),
    setup((5, 5), (5, 5), (5, 5), dim=1, note="square"),
)
_SELECTIONS = (
    setup((5, 4), (3,), dim=0),
    setup((3, 9), (7,), dim=1),
    setup((2, 6, 3), (5,), dim=-2),
    setup((2, 3, 4, 5), (4,), dim=3),
    setup((33,), (20,), dim=0, note="vector"),
    setup((1, 2), (1,), dim=0, note="size 1"),
    setup((4, 5), (0,), dim=0, note="empty index"),
    setup((0, 5), (3,), dim=1, note="empty"),
    setup((5, 5), (3,), dim=1, note="square"),
)
_UPDATES = tuple(
    setup(
        *one.shapes.values(),
        _select_shape(*one.shapes.values(), dim=one.attributes["dim"]),
        note=one.note,
        **one.attributes,
    )
    for one in _SELECTIONS
)
_ROWS = Domain(indices_of=("input0", 0), negative=True)
_COLUMNS = Domain(indices_of=("input0", 1), negative=True)
_DISTINCT_ROWS = Domain(indices_of=("input0", 0), distinct=True)
_DISTINCT_COLUMNS = Domain(indices_of=("input0", 1), distinct=True)
_REDUCES = ("sum", "prod", "mean", "amax", "amin")

OPERATORS = (
    _indexing(
        "gather",
        "Elements of input0 at the positions along dim that input1 names.",
        _with_index(MOVED, 0),
        (
            setup((4, 5), (3, 5), dim=0),
            setup((4, 5), (4, 7), dim=1),
            setup((4, 5), (2, 3), dim=0, note="smaller index"),
            setup((2, 3, 6), (2, 2, 9), dim=-1),
            setup((2, 7, 3), (1, 5, 3), dim=1),
            setup((33,), (40,), dim=0, note="vector"),
            setup((1,), (1,), dim=0, note="size 1"),
            setup((4, 5), (0, 5), dim=0, note="empty index"),
            setup((0, 5), (0, 3), dim=1, note="empty"),
            setup((5, 5), (5, 5), dim=1, note="square"),
        ),
        _gather_shape,
        attributes={"dim": DIM},
    ),
    _indexing(
        "take_along_dim",
        "Like gather, with all other dimensions broadcast.",
        _with_index(MOVED, 0),
        (
            setup((4, 5), (3, 5), dim=0),
            setup((4, 5), (4, 7), dim=1),
            setup((4, 5), (1, 3), dim=1, note="broadcast"),
            setup((1, 6), (3, 2), dim=1, note="broadcast"),
            setup((2, 3, 6), (2, 1, 9), dim=-1, note="broadcast"),
            setup((33,), (40,), dim=0, note="vector"),
            setup((1,), (1,), dim=0, note="size 1"),
            setup((4, 5), (0, 5), dim=0, note="empty index"),
            setup((5, 5), (5, 5), dim=1, note="square"),
        ),
        _along_shape,
        attributes={"dim": DIM},
        aliases=("input", "indices"),
    ),
    _indexing(
        "scatter",
        "input0 with elements of input2 put where input1 says along dim; no place is named twice.",
        _with_index(MOVED, 1),
        _SCATTERS,
        _scatter_shape,
        attributes={"dim": DIM},
        domain={"input1": Domain(indices_of=("input0", "dim"), distinct=True)},
    ),
    _indexing(
        "scatter_add",
        "input0 with elements of input2 added where input1 says along dim.",
        _with_index((*FLOATS, "int32", "int64", "uint8"), 1),
        _SCATTERS,
        _scatter_shape,
        tags=("edge:nan", "reduction"),
        rounding=Sums("input0", in_place=True),
        attributes={"dim": DIM},
    ),
    _indexing(
        "scatter_reduce",
        "input0 combined with elements of input2 where input1 says along dim; untouched cells stay.",
        _with_index((*FLOATS, "int32", "int64"), 1),
        (
            *(setup(*_SCATTERS[0].shapes.values(), dim=0, reduce=one) for one in _REDUCES),
            *(
                setup(*_SCATTERS[1].shapes.values(), dim=1, reduce=one, include_self=False)
                for one in _REDUCES
            ),
            setup(*_SCATTERS[5].shapes.values(), dim=0, reduce="mean", note="vector"),
            setup(*_SCATTERS[9].shapes.values(), dim=1, reduce="sum", note="square"),
            setup(*_SCATTERS[6].shapes.values(), dim=0, reduce="prod", note="size 1"),
            setup(
                *_SCATTERS[7].shapes.values(), dim=0, reduce="amax", include_self=False, note="empty index"
            ),
        ),
        _scatter_shape,
        attributes={
            "dim": DIM,
            "reduce": AttributeSpec(str, choices=_REDUCES, doc="how to combine"),
            "include_self": AttributeSpec(bool, True, doc="whether input0's own elements take part"),
        },
        domain={"input0": Domain(low=-3, high=3), "input1": _INDEX, "input2": Domain(low=-3, high=3)},
        tags=("edge:nan", "reduction"),
        rounding=Stages(),
    ),
    _indexing(
        "index_select",
        "Slices of input0 along dim, in the order of input1.",
        _with_index(MOVED, 0),
        _SELECTIONS,
        _select_shape,
        attributes={"dim": DIM},
    ),
    _indexing(
        "index_add",
        "input0 with alpha times slices of input2 added at the positions input1 along dim.",
        _with_index((*FLOATS, "int32", "int64"), 1),
        (
            *_UPDATES,
            setup((5, 4), (7,), (7, 4), dim=0, alpha=2),
            setup((5, 4), (3,), (5, 3), dim=1, alpha=-1),
        ),
        _update_shape,
        tags=("edge:nan", "reduction"),
        rounding=Sums("input0", in_place=True),
        attributes={"dim": DIM, "alpha": AttributeSpec((int, float), 1, doc="factor of the slices")},
        aliases=("input", "index", "source"),
    ),
    _indexing(
        "index_copy",
        "input0 with slices of input2 put at the positions input1 along dim; none is named twice.",
        _with_index(MOVED, 1),
        (
            *(one for one in _UPDATES if one.shapes["input0"] != (0, 5)),
            setup((6, 2, 3), (2,), (6, 2, 3), dim=1),
        ),
        _update_shape,
        attributes={"dim": DIM},
        domain={"input1": Domain(indices_of=("input0", "dim"), distinct=True)},
        aliases=("input", "index", "source"),
    ),
    _indexing(
        "index_fill",
        "input0 with value put in the slices input1 along dim.",
        _with_index((*FLOATS, "int32", "int64", "uint8"), 0),
        (
            *(setup(*one.shapes.values(), note=one.note, value=3, **one.attributes) for one in _SELECTIONS),
            setup((6, 4), (2,), dim=0, value=5),
        ),
        _fill_shape,
        attributes={"dim": DIM, "value": AttributeSpec((int, float), doc="what to put there")},
    ),
    _indexing(
        "index",
        "input0[input1, input2]: indices broadcast, negative ones count from the end.",
        tuple((name, "int64", "int64") for name in MOVED),
        (
            setup((4, 5), (3,), (3,)),
            setup((4, 5), (3, 1), (4,), note="broadcast"),
            setup((4, 5, 6), (7,), (7,)),
            setup((3, 9, 2, 2), (2, 2), (2,), note="broadcast"),
            setup((4, 5), (), (), note="0-d index"),
            setup((1, 1), (5,), (5,), note="size 1"),
            setup((4, 5), (0,), (0,), note="empty index"),
            setup((6, 33), (40,), (1,), note="broadcast"),
        ),
        _index_shape,
        domain={"input1": _ROWS, "input2": _COLUMNS},
        aliases=("input", "index0", "index1"),
        torch="torch.ops.aten.index.Tensor",
    ),
    _indexing(
        "index_put",
        "input0 with input0[input1, input2] replaced by, or increased by, input3; no place is named twice.",
        tuple((name, "int64", "int64", name) for name in (*FLOATS, "int32", "int64")),
        (
            setup((4, 5), (3,), (3,), (3,)),
            setup((4, 5), (3,), (3,), (3,), accumulate=True),
            setup((4, 5), (3, 1), (4,), (3, 4), note="broadcast"),
            setup((4, 5), (3, 1), (4,), (4,), accumulate=True, note="broadcast"),
            setup((4, 5, 6), (4,), (4,), (4, 6)),
            setup((4, 5, 6), (4,), (4,), (), accumulate=True, note="0-d values"),
            setup((1, 1), (1,), (1,), (1,), note="size 1"),
            setup((4, 5), (0,), (0,), (0,), note="empty index"),
            setup((9, 33), (9, 1), (20,), (9, 1), accumulate=True, note="broadcast"),
        ),
        _put_shape,
        attributes={"accumulate": AttributeSpec(bool, False, doc="whether to add")},
        tags=("edge:nan",),
        domain={"input1": _DISTINCT_ROWS, "input2": _DISTINCT_COLUMNS},
        aliases=("input", "index0", "index1", "values"),
    ),
    operator(
        "masked_fill",
        "indexing",
        "value where input1 holds, else input0.",
        dtypes=tuple((name, "bool") for name in REAL + BOOL),
        setups=tuple(
            setup(*shapes, value=0 if note == "zero" else 1, note=note)
            for *shapes, note in (
                ((8, 33), (8, 33), ""),
                ((4, 5), (5,), "broadcast"),
                ((2, 3, 4), (3, 1), "broadcast"),
                ((129,), (129,), "odd length"),
                ((), (), "0-d"),
                ((3, 4), (), "0-d mask"),
                ((1,), (1,), "size 1"),
                ((0, 3), (1, 3), "empty"),
                ((6, 7), (6, 7), "zero"),
            )
        ),
        shapes=broadcast,
        torch="torch.masked_fill",
        attributes={"value": AttributeSpec((int, float), doc="what to put there")},
        tags=("elementwise", "data-movement", "differentiable"),
        aliases=("input", "mask"),
    ),
)
