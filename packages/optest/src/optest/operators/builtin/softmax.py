"""Softmax and related operators."""

from __future__ import annotations

from ..descriptor import OperatorDescriptor, Shape
from .build import DIM, FLOATS, alike, axis, operator, setup


def _shape(shape: Shape, *, dim: int) -> Shape:
    axis(dim, len(shape))
    return shape


def _softmax(name: str, doc: str) -> OperatorDescriptor:
    return operator(
        name,
        "softmax",
        doc,
        dtypes=alike(1, FLOATS),
        setups=(
            setup((4, 7), dim=1),
            setup((4, 7), dim=0),
            setup((2, 3, 4), dim=1),
            setup((2, 3, 4, 5), dim=-3),
            setup((130,), dim=-1, note="long"),
            setup((3, 65), dim=1, note="odd length"),
            setup((3, 1), dim=1, note="size 1"),
            setup((), dim=0, note="0-d"),
            setup((0, 4), dim=1, note="empty"),
            setup((3, 0), dim=1, note="empty"),
        ),
        shapes=_shape,
        torch=f"torch.nn.functional.{name}",
        attributes={"dim": DIM},
        tags=("reduction", "edge:nan", "differentiable"),
    )


OPERATORS = (
    _softmax("softmax", "exp(x) over its sum along dim, without overflow."),
    _softmax("log_softmax", "x − log(sum(exp(x))) along dim."),
    _softmax("softmin", "softmax(−x)."),
)
