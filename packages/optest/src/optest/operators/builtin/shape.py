"""Operators that only move elements, in every dtype; every bit must be preserved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from .build import DIM, FLOAT8, MOVED, alike, axes, axis, broadcast, need, operator, setup

_TYPES = (*MOVED, *FLOAT8, "int8")


def movement(
    name: str,
    doc: str,
    setups: tuple[Setup, ...],
    shapes: Any,
    attributes: Mapping[str, AttributeSpec] | None = None,
    *,
    inputs: int = 1,
    dtypes: tuple[str, ...] = _TYPES,
    torch: str = "",
    category: str = "shape",
) -> OperatorDescriptor:
    """Describe an operator that moves the elements of ``inputs`` tensors of one dtype."""
    return operator(
        name,
        category,
        doc,
        dtypes=alike(inputs, dtypes),
        setups=setups,
        shapes=shapes,
        torch=torch or f"torch.{name}",
        attributes=attributes,
        tags=("data-movement", "differentiable"),
    )


def listed(doc: str) -> AttributeSpec:
    """Return the spec of a required list of integers."""
    return AttributeSpec(list, doc=doc)


def integer(default: int, doc: str) -> AttributeSpec:
    """Return the spec of an integer with a default."""
    return AttributeSpec(int, default, doc=doc)


def _reshaped(inputs: Shape, *, shape: tuple[int, ...]) -> Shape:
    total, known = math.prod(inputs), math.prod(one for one in shape if one != -1)
    need(list(shape).count(-1) <= 1, f"{list(shape)} leaves more than one size open")
    if -1 in shape:
        need(known > 0 and total % known == 0, f"{total} elements do not make up {list(shape)}")
        return tuple(total // known if one == -1 else one for one in shape)
    need(total == known, f"{total} elements do not make up {list(shape)}")
    return tuple(shape)


def _flattened(shape: Shape, *, start_dim: int, end_dim: int) -> Shape:
    if not shape:
        return (1,)
    first, last = axis(start_dim, len(shape)), axis(end_dim, len(shape))
    need(first <= last, f"start_dim {start_dim} is behind end_dim {end_dim}")
    return (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :])


def _permuted(shape: Shape, *, dims: tuple[int, ...]) -> Shape:
    need(len(dims) == len(shape), f"{list(dims)} must name each of {len(shape)} dimensions once")
    return tuple(shape[one] for one in axes(tuple(dims), len(shape))) if shape else ()


def _transposed(shape: Shape, *, dim0: int, dim1: int) -> Shape:
    sizes, first, second = list(shape), axis(dim0, len(shape)), axis(dim1, len(shape))
    if sizes:
        sizes[first], sizes[second] = sizes[second], sizes[first]
    return tuple(sizes)


def _squeezed(shape: Shape, *, dim: Any) -> Shape:
    dims = axes(dim, len(shape))
    return tuple(size for i, size in enumerate(shape) if size != 1 or i not in dims)


def _unsqueezed(shape: Shape, *, dim: int) -> Shape:
    place = axis(dim, len(shape) + 1)
    return (*shape[:place], 1, *shape[place:])


def _expanded(shape: Shape, *, size: tuple[int, ...]) -> Shape:
    need(
        len(size) >= len(shape) and broadcast(shape, tuple(size)) == tuple(size),
        f"{list(shape)} is not {list(size)}",
    )
    return tuple(size)


def _concatenated(*shapes: Shape, dim: int) -> Shape:
    dim = axis(dim, len(shapes[0]))
    around = {(*one[:dim], *one[dim + 1 :]) for one in shapes}
    need(len(around) == 1 and all(shapes), f"{[list(one) for one in shapes]} differ in more than dim {dim}")
    return (*shapes[0][:dim], sum(one[dim] for one in shapes), *shapes[0][dim + 1 :])


def _stacked(*shapes: Shape, dim: int) -> Shape:
    need(len(set(shapes)) == 1, f"{[list(one) for one in shapes]} must be equal")
    place = axis(dim, len(shapes[0]) + 1)
    return (*shapes[0][:place], len(shapes), *shapes[0][place:])


def _flipped(shape: Shape, *, dims: tuple[int, ...]) -> Shape:
    axes(tuple(dims), len(shape))
    return shape


def _rolled(shape: Shape, *, shifts: Any, dims: Any) -> Shape:
    counts = [len(one) if isinstance(one, tuple) else 1 for one in (shifts, dims)]
    need(dims is None or counts[0] == counts[1], f"shifts {shifts} and dims {dims} must be equally many")
    for one in () if dims is None else dims if isinstance(dims, tuple) else (dims,):
        axis(one, len(shape))
    return shape


def _tiled(shape: Shape, *, dims: tuple[int, ...]) -> Shape:
    rank = max(len(shape), len(dims))
    sizes = (1,) * (rank - len(shape)) + shape
    return tuple(a * b for a, b in zip(sizes, (1,) * (rank - len(dims)) + tuple(dims), strict=True))


def _repeated(shape: Shape, *, repeats: int, dim: int | None) -> Shape:
    if dim is None:
        return (math.prod(shape) * repeats,)
    dim = axis(dim, len(shape))
    return (*shape[:dim], shape[dim] * repeats, *shape[dim + 1 :])


OPERATORS = (
    movement(
        "reshape",
        "The same elements in row-major order under another shape; −1 stands for what is left.",
        (
            setup((4, 6), shape=[6, 4]),
            setup((4, 6), shape=[24]),
            setup((2, 3, 4), shape=[-1, 4]),
            setup((24,), shape=[2, 3, 4]),
            setup((1, 1), shape=[], note="to 0-d"),
            setup((), shape=[1, 1], note="0-d"),
            setup((0, 3), shape=[3, 0], note="empty"),
            setup((2, 6), shape=[2, -1, 2]),
            setup((7, 1), shape=[1, 7]),
        ),
        _reshaped,
        {"shape": listed("the new sizes")},
    ),
    movement(
        "flatten",
        "Dimensions start_dim to end_dim as one.",
        (
            setup((4, 6)),
            setup((2, 3, 4), start_dim=1),
            setup((2, 3, 4, 5), start_dim=1, end_dim=2),
            setup((2, 3, 4), end_dim=1),
            setup((7,), note="vector"),
            setup((), note="0-d"),
            setup((1, 1), note="size 1"),
            setup((0, 3, 2), start_dim=1, note="empty"),
            setup((2, 3, 4), start_dim=-2, end_dim=-1),
        ),
        _flattened,
        {"start_dim": integer(0, "the first"), "end_dim": integer(-1, "the last")},
    ),
    movement(
        "permute",
        "The dimensions in another order.",
        (
            setup((4, 6), dims=[1, 0]),
            setup((4, 6), dims=[0, 1]),
            setup((2, 3, 4), dims=[2, 0, 1]),
            setup((2, 3, 4), dims=[1, 2, 0]),
            setup((2, 3, 4, 5), dims=[0, -1, 1, 2]),
            setup((2, 3, 4, 5), dims=[3, 2, 1, 0]),
            setup((7,), dims=[0]),
            setup((), dims=[], note="0-d"),
            setup((1, 1), dims=[1, 0], note="size 1"),
            setup((0, 3), dims=[1, 0], note="empty"),
        ),
        _permuted,
        {"dims": listed("the input's dimension for each of the result's")},
    ),
    movement(
        "transpose",
        "Two dimensions exchanged.",
        (
            setup((4, 6), dim0=0, dim1=1),
            setup((2, 3, 4), dim0=0, dim1=2),
            setup((2, 3, 4), dim0=-1, dim1=1),
            setup((2, 3, 4, 5), dim0=1, dim1=2),
            setup((33, 17), dim0=1, dim1=0),
            setup((5,), dim0=0, dim1=0),
            setup((1, 1), dim0=0, dim1=1, note="size 1"),
            setup((), dim0=0, dim1=-1, note="0-d"),
            setup((0, 3), dim0=0, dim1=1, note="empty"),
        ),
        _transposed,
        {"dim0": DIM, "dim1": DIM},
    ),
    movement(
        "squeeze",
        "Without the dimensions of size 1 among dim.",
        (
            setup((1, 4, 1, 5), dim=0),
            setup((1, 4, 1, 5), dim=-2),
            setup((1, 4, 1, 5), dim=[0, 2]),
            setup((1, 4, 1, 5), dim=1, note="not 1"),
            setup((3, 1), dim=[0, 1]),
            setup((1, 1), dim=[0, 1], note="size 1"),
            setup((), dim=0, note="0-d"),
            setup((0, 1), dim=1, note="empty"),
        ),
        _squeezed,
        {"dim": AttributeSpec((int, list), doc="which dimensions")},
    ),
    movement(
        "unsqueeze",
        "With one more dimension of size 1.",
        (
            setup((4, 5), dim=0),
            setup((4, 5), dim=1),
            setup((4, 5), dim=2),
            setup((4, 5), dim=-1),
            setup((2, 3, 4), dim=-2),
            setup((), dim=0, note="0-d"),
            setup((1,), dim=0, note="size 1"),
            setup((0, 2), dim=1, note="empty"),
        ),
        _unsqueezed,
        {"dim": DIM},
    ),
    movement(
        "broadcast_to",
        "Repeated along dimensions of size 1 and new leading ones.",
        (
            setup((5,), size=[4, 5]),
            setup((4, 1), size=[4, 6]),
            setup((1, 3, 1), size=[2, 3, 4]),
            setup((2, 3), size=[2, 3]),
            setup((), size=[3, 2], note="0-d"),
            setup((1,), size=[1], note="size 1"),
            setup((1, 3), size=[0, 3], note="empty"),
            setup((3, 1, 2), size=[2, 3, 4, 2]),
            setup((8, 1, 5), size=[8, 3, 5]),
        ),
        _expanded,
        {"size": listed("the result's shape")},
    ),
    movement(
        "cat",
        "Three tensors behind one another along dim.",
        (
            setup((2, 3), (4, 3), (1, 3)),
            setup((2, 3), (2, 1), (2, 4), dim=1),
            setup((2, 3, 4), (2, 5, 4), (2, 1, 4), dim=-2),
            setup((5,), (6,), (7,)),
            setup((1,), (1,), (1,), note="size 1"),
            setup((0, 3), (2, 3), (0, 3), note="partly empty"),
            setup((2, 0), (2, 0), (2, 0), dim=1, note="empty"),
            setup((2, 2, 2), (2, 2, 2), (2, 2, 2), dim=2),
        ),
        _concatenated,
        {"dim": integer(0, DIM.doc)},
        inputs=3,
    ),
    movement(
        "stack",
        "Three equal shapes side by side along a new dimension.",
        tuple(
            setup(*(shape,) * 3, dim=dim, note=note)
            for shape, dim, note in (
                ((2, 3), 0, ""),
                ((2, 3), 1, ""),
                ((2, 3), 2, ""),
                ((2, 3, 4), -2, ""),
                ((7,), -1, ""),
                ((), 0, "0-d"),
                ((1,), 0, "size 1"),
                ((0, 2), 1, "empty"),
            )
        ),
        _stacked,
        {"dim": integer(0, DIM.doc)},
        inputs=3,
    ),
    movement(
        "flip",
        "Reversed along dims.",
        (
            setup((4, 5), dims=[0]),
            setup((4, 5), dims=[1]),
            setup((4, 5), dims=[0, 1]),
            setup((2, 3, 4), dims=[-1, 0]),
            setup((33,), dims=[0]),
            setup((1,), dims=[0], note="size 1"),
            setup((), dims=[], note="0-d"),
            setup((0, 3), dims=[1], note="empty"),
            setup((2, 3, 4), dims=[1]),
        ),
        _flipped,
        {"dims": listed("which dimensions")},
        dtypes=(*MOVED, "int8"),
    ),
    movement(
        "roll",
        "Moved along dims, what leaves coming in at the other end; dims null rolls the flattened tensor.",
        (
            setup((4, 5), shifts=1, dims=0),
            setup((4, 5), shifts=-2, dims=1),
            setup((4, 5), shifts=[1, 2], dims=[0, 1]),
            setup((4, 5), shifts=3),
            setup((7,), shifts=10, dims=0, note="more than the size"),
            setup((2, 3, 4), shifts=-1, dims=-1),
            setup((1,), shifts=1, dims=0, note="size 1"),
            setup((0, 3), shifts=1, dims=1, note="empty"),
            setup((33,), shifts=0, dims=0, note="nothing"),
        ),
        _rolled,
        {
            "shifts": AttributeSpec((int, list), doc="how far, for each of dims"),
            "dims": AttributeSpec((int, list, type(None)), None, doc="which dimensions"),
        },
    ),
    movement(
        "tile",
        "Copies side by side, dims of them along each dimension.",
        (
            setup((2, 3), dims=[2, 1]),
            setup((2, 3), dims=[1, 3]),
            setup((2, 3), dims=[2]),
            setup((3,), dims=[2, 2]),
            setup((), dims=[4], note="0-d"),
            setup((1,), dims=[5], note="size 1"),
            setup((2, 3), dims=[0, 2], note="none"),
            setup((0, 2), dims=[2, 2], note="empty"),
            setup((2, 1, 3), dims=[1, 2, 2]),
        ),
        _tiled,
        {"dims": listed("number of copies")},
    ),
    movement(
        "repeat_interleave",
        "Each element, or each slice along dim, several times in a row.",
        (
            setup((4,), repeats=3),
            setup((2, 3), repeats=2),
            setup((2, 3), repeats=2, dim=0),
            setup((2, 3), repeats=3, dim=1),
            setup((2, 3, 2), repeats=2, dim=-2),
            setup((), repeats=2, note="0-d"),
            setup((1,), repeats=1, note="size 1"),
            setup((2, 3), repeats=0, dim=1, note="none"),
            setup((0, 2), repeats=2, dim=1, note="empty"),
        ),
        _repeated,
        {
            "repeats": AttributeSpec(int, minimum=0, doc="how often"),
            "dim": AttributeSpec((int, type(None)), None, doc="null: of the flattened tensor"),
        },
    ),
)
