"""Padding, with the sides in PyTorch's order: of the last dimension first."""

from __future__ import annotations

from typing import Any

from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from .build import FLOATS, MOVED, alike, need, operator, setup

_PAD = AttributeSpec(list, doc="elements before and after, for the last dimension first")


def _padded(shape: Shape, pad: tuple[int, ...]) -> Shape:
    need(len(pad) % 2 == 0, f"pad {list(pad)} must come in pairs: before and after")
    need(len(pad) // 2 <= len(shape), f"pad {list(pad)} is for more dimensions than {list(shape)} has")
    sizes = list(shape)
    for i in range(len(pad) // 2):
        sizes[-1 - i] += pad[2 * i] + pad[2 * i + 1]
        need(sizes[-1 - i] >= 0, f"pad {list(pad)} takes more than there is of {list(shape)}")
    return tuple(sizes)


def _constant_shape(shape: Shape, *, pad: tuple[int, ...], mode: str, value: float) -> Shape:
    return _padded(shape, tuple(pad))


def _filled_from_input(limit: int | None, what: str) -> Any:
    """Return the shape rule of padding with the input's own elements.

    A side may get at most ``size − limit`` elements; any number if ``limit`` is None.
    """

    def shape(shape: Shape, *, pad: tuple[int, ...], mode: str) -> Shape:
        rank = len(pad) // 2
        need(len(shape) in (rank + 1, rank + 2), f"{what} pads the last 1 to 3 dimensions of one or two more")
        for i, one in enumerate(pad):
            size = shape[-1 - i // 2]
            most = size - limit if limit is not None else one
            need(0 <= one <= most and size > 0, f"{what} cannot add {one} elements to a dimension of {size}")
        return _padded(shape, tuple(pad))

    return shape


def _mirrored(mode: str, name: str, doc: str, limit: int | None) -> OperatorDescriptor:
    return operator(
        name,
        "padding",
        doc,
        dtypes=alike(1, FLOATS if mode != "circular" else (*FLOATS, "int32", "int64")),
        setups=_SETUPS,
        shapes=_filled_from_input(limit, name),
        torch="torch.nn.functional.pad",
        attributes={"pad": _PAD, "mode": AttributeSpec(str, mode, choices=(mode,), doc="fixed")},
        tags=("differentiable", "data-movement"),
    )


_SETUPS: tuple[Setup, ...] = (
    setup((2, 3, 5), pad=[2, 1]),
    setup((2, 5), pad=[1, 3], note="no batch"),
    setup((2, 2, 4, 5), pad=[1, 2, 3, 0]),
    setup((2, 4, 5), pad=[0, 2, 1, 1], note="no batch"),
    setup((1, 2, 3, 4, 3), pad=[1, 1, 2, 0, 0, 2]),
    setup((1, 1, 33), pad=[0, 32]),
    setup((2, 3, 4), pad=[0, 0], note="nothing"),
    setup((1, 1, 2, 2), pad=[1, 1, 1, 1], note="small"),
    setup((0, 2, 4), pad=[1, 1], note="empty"),
)

OPERATORS = (
    operator(
        "constant_pad",
        "padding",
        "The input with value around it; negative sides cut.",
        dtypes=alike(1, MOVED),
        setups=(
            setup((4, 5), pad=[1, 2]),
            setup((4, 5), pad=[1, 2, 3, 0], value=1),
            setup((2, 3, 4), pad=[0, 1, 2, 0, 1, 1], value=2),
            setup((6, 7), pad=[-1, -2], note="cut"),
            setup((6, 7), pad=[2, -3, -1, 1], value=1, note="cut"),
            setup((3,), pad=[0, 0], note="nothing"),
            setup((1,), pad=[3, 3], value=1, note="size 1"),
            setup((0, 3), pad=[1, 1, 2, 1], value=1, note="empty"),
            setup((2, 3, 2, 3), pad=[1, 0, 0, 1]),
        ),
        shapes=_constant_shape,
        torch="torch.nn.functional.pad",
        attributes={
            "pad": _PAD,
            "mode": AttributeSpec(str, "constant", choices=("constant",), doc="fixed"),
            "value": AttributeSpec((int, float), 0, doc="what to put around"),
        },
        tags=("differentiable", "data-movement"),
    ),
    _mirrored("reflect", "reflection_pad", "The input mirrored at its border elements.", 1),
    _mirrored("replicate", "replication_pad", "The input with its border elements repeated.", None),
    _mirrored("circular", "circular_pad", "The input continued from its other end.", 0),
)
