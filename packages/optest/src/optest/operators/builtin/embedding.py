"""Tables looked up by index."""

from __future__ import annotations

from ...core.roundoff import Stages
from ..descriptor import AttributeSpec, Shape
from ..domain import Domain
from .build import FLOATS, gives, need, operator, setup

_ROWS = Domain(indices_of=("input1", 0))
_DTYPES = tuple(("int64", name) for name in FLOATS)


def _embedding_shape(index: Shape, weight: Shape) -> Shape:
    need(len(weight) == 2, f"the table {list(weight)} must be a matrix")
    return (*index, weight[1])


def _bag_shape(index: Shape, weight: Shape, *, mode: str) -> Shape:
    need(
        len(index) == 2 and len(weight) == 2, f"bags {list(index)} and table {list(weight)} must be matrices"
    )
    return (index[0], weight[1])


def _one_hot_shape(index: Shape, *, num_classes: int) -> Shape:
    return (*index, num_classes)


OPERATORS = (
    operator(
        "embedding",
        "embedding",
        "The rows of input1 that input0 names.",
        dtypes=_DTYPES,
        setups=(
            setup((4,), (7, 3)),
            setup((2, 5), (10, 4)),
            setup((2, 3, 4), (9, 2)),
            setup((33,), (3, 8), note="repeated"),
            setup((5,), (6, 1), note="one column"),
            setup((1,), (1, 1), note="size 1"),
            setup((), (7, 3), note="0-d"),
            setup((0,), (7, 3), note="empty"),
        ),
        shapes=_embedding_shape,
        torch="torch.nn.functional.embedding",
        types=lambda dtypes, attributes: (dtypes[1],),
        domain={"input0": _ROWS},
        tags=("index", "data-movement", "differentiable"),
        aliases=("input", "weight"),
    ),
    operator(
        "embedding_bag",
        "embedding",
        "For each row of input0 the sum, mean or largest of the rows of input1 that it names.",
        dtypes=_DTYPES,
        setups=(
            setup((4, 3), (7, 3), mode="sum"),
            setup((4, 3), (7, 3), mode="mean"),
            setup((4, 3), (7, 3), mode="max"),
            setup((2, 33), (5, 4), mode="sum", note="repeated"),
            setup((2, 33), (5, 4), note="repeated"),
            setup((3, 1), (6, 2), mode="max", note="one row"),
            setup((1, 1), (1, 1), mode="sum", note="size 1"),
            setup((0, 4), (7, 3), mode="sum", note="empty"),
        ),
        shapes=_bag_shape,
        torch="torch.nn.functional.embedding_bag",
        types=lambda dtypes, attributes: (dtypes[1],),
        attributes={"mode": AttributeSpec(str, "mean", choices=("sum", "mean", "max"), doc="how to combine")},
        domain={"input0": _ROWS},
        rounding=Stages(),
        tags=("index", "reduction", "differentiable"),
        aliases=("input", "weight"),
    ),
    operator(
        "one_hot",
        "embedding",
        "1 at the index, 0 elsewhere, along a new last dimension.",
        dtypes=(("int64",),),
        setups=tuple(
            setup(shape, num_classes=classes, note=note)
            for shape, classes, note in (
                ((4,), 5, ""),
                ((2, 3), 5, ""),
                ((2, 3, 4), 7, ""),
                ((33,), 9, "odd length"),
                ((3, 5), 5, ""),
                ((6,), 5, ""),
                ((2, 7), 5, ""),
                ((9,), 5, ""),
                ((129,), 5, "long"),
                ((1,), 5, "size 1"),
                ((), 6, "0-d"),
                ((0, 2), 5, "empty"),
            )
        ),
        shapes=_one_hot_shape,
        torch="torch.nn.functional.one_hot",
        types=gives("int64"),
        attributes={"num_classes": AttributeSpec(int, minimum=1, doc="size of the new dimension")},
        domain={"input0": Domain(low=0, high=4)},
        tags=("index",),
    ),
)
