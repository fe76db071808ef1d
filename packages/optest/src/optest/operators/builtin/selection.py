"""Parts, planes and windows of one tensor, and reordered dimensions. Not here: shapes (``shape``)."""

from __future__ import annotations

from ..descriptor import AttributeSpec, Shape
from .build import DIM, MOVED, axes, axis, need, setup
from .shape import integer, movement


def _matrices(shape: Shape, *, diagonal: int) -> Shape:
    need(len(shape) >= 2, f"{list(shape)} is not a matrix or a batch of them")
    return shape


def _diagonal(shape: Shape, *, offset: int, dim1: int, dim2: int) -> Shape:
    first, second = axes((dim1, dim2), len(shape))
    length = min(shape[first] + min(offset, 0), shape[second] - max(offset, 0))
    return (*(size for i, size in enumerate(shape) if i not in (first, second)), max(length, 0))


def _embedded(shape: Shape, *, offset: int, dim1: int, dim2: int) -> Shape:
    need(bool(shape), "a scalar is not a diagonal; the input needs one dimension at least")
    first, second = sorted(axes((dim1, dim2), len(shape) + 1))
    sizes, side = list(shape[:-1]), shape[-1] + abs(offset)
    sizes.insert(first, side)
    sizes.insert(second, side)
    return tuple(sizes)


def _narrowed(shape: Shape, *, dim: int, start: int, length: int) -> Shape:
    dim = axis(dim, len(shape))
    need(
        0 <= start <= start + length <= shape[dim], f"[{start}, {start + length}) is not within {shape[dim]}"
    )
    return (*shape[:dim], length, *shape[dim + 1 :])


def _sliced(shape: Shape, *, dim: int, start: int, end: int, step: int) -> Shape:
    dim = axis(dim, len(shape))
    return (*shape[:dim], len(range(shape[dim])[start:end:step]), *shape[dim + 1 :])


def _selected(shape: Shape, *, dim: int, index: int) -> Shape:
    dim = axis(dim, len(shape))
    need(-shape[dim] <= index < shape[dim], f"index {index} is not within {shape[dim]}")
    return (*shape[:dim], *shape[dim + 1 :])


def _moved(shape: Shape, *, source: int, destination: int) -> Shape:
    sizes = list(shape)
    sizes.insert(axis(destination, len(shape)), sizes.pop(axis(source, len(shape))))
    return tuple(sizes)


def _rotated(shape: Shape, *, k: int, dims: tuple[int, ...]) -> Shape:
    first, second = axes(tuple(dims), len(shape))
    sizes = list(shape)
    if k % 2:
        sizes[first], sizes[second] = sizes[second], sizes[first]
    return tuple(sizes)


def _unfolded(shape: Shape, *, dimension: int, size: int, step: int) -> Shape:
    dim = axis(dimension, len(shape))
    need(size <= shape[dim], f"windows of {size} do not fit {shape[dim]}")
    return (*shape[:dim], (shape[dim] - size) // step + 1, *shape[dim + 1 :], size)


_TRIANGLES = (
    setup((4, 4)),
    setup((3, 6)),
    setup((6, 3), diagonal=1),
    setup((5, 5), diagonal=-2),
    setup((2, 3, 4), diagonal=1),
    setup((4, 4), diagonal=9, note="beyond"),
    setup((1, 1), note="size 1"),
    setup((0, 4), note="empty"),
    setup((3, 4), diagonal=-9, note="beyond"),
)
_DIMS2 = {"dim1": integer(0, "rows"), "dim2": integer(1, "columns")}
_DIAGONAL = {"diagonal": integer(0, "0: the main one; above it positive")}

OPERATORS = (
    movement(
        "tril",
        "The lower triangle, 0 above the diagonal.",
        _TRIANGLES,
        _matrices,
        _DIAGONAL,
        dtypes=(*MOVED, "int8"),
    ),
    movement(
        "triu",
        "The upper triangle, 0 below the diagonal.",
        _TRIANGLES,
        _matrices,
        _DIAGONAL,
        dtypes=(*MOVED, "int8"),
    ),
    movement(
        "diagonal",
        "The diagonal of two dimensions, as the last dimension.",
        (
            setup((4, 4)),
            setup((3, 6), offset=2),
            setup((6, 3), offset=-1),
            setup((2, 3, 4), dim1=1, dim2=2),
            setup((2, 3, 4), dim1=-1, dim2=0, offset=1),
            setup((3, 3), offset=5, note="beyond"),
            setup((1, 1), note="size 1"),
            setup((0, 3), note="empty"),
            setup((2, 5, 5, 3), dim1=1, dim2=2, offset=-2),
        ),
        _diagonal,
        {"offset": integer(0, "0: the main one; above it positive"), **_DIMS2},
    ),
    movement(
        "diag_embed",
        "The last dimension as the diagonal of two new ones, 0 elsewhere.",
        (
            setup((4,)),
            setup((3,), offset=1),
            setup((3,), offset=-2),
            setup((2, 3)),
            setup((2, 3), dim1=0, dim2=1),
            setup((2, 3, 2), dim1=1, dim2=-1, offset=1),
            setup((1,), note="size 1"),
            setup((0,), note="empty"),
            setup((2, 0), offset=1, note="empty"),
        ),
        _embedded,
        {
            "offset": integer(0, "0: the main one; above it positive"),
            "dim1": integer(-2, "rows"),
            "dim2": integer(-1, "columns"),
        },
        dtypes=MOVED,
    ),
    movement(
        "narrow",
        "length elements along dim, from start on.",
        (
            setup((4, 5), dim=0, start=1, length=2),
            setup((4, 5), dim=1, start=0, length=5),
            setup((5, 5), dim=1, start=1, length=2),
            setup((4, 5), dim=1, start=3, length=2),
            setup((2, 3, 4), dim=-1, start=2, length=1),
            setup((33,), dim=0, start=16, length=17),
            setup((1,), dim=0, start=0, length=1, note="size 1"),
            setup((4, 5), dim=0, start=4, length=0, note="none"),
            setup((0, 5), dim=1, start=1, length=2, note="empty"),
        ),
        _narrowed,
        {
            "dim": DIM,
            "start": AttributeSpec(int, doc="the first"),
            "length": AttributeSpec(int, minimum=0, doc="how many"),
        },
    ),
    movement(
        "slice",
        "Every step-th element along dim from start to before end; negative ones count from the last.",
        (
            setup((8, 5), dim=0, start=1, end=6),
            setup((8, 5), dim=0, start=1, end=8, step=3),
            setup((4, 9), dim=1, start=-4, end=-1),
            setup((2, 3, 7), dim=-1, start=0, end=100, step=2, note="end beyond"),
            setup((33,), start=5, end=30, step=4),
            setup((5,), start=3, end=2, note="none"),
            setup((1,), start=0, end=1, note="size 1"),
            setup((0, 4), dim=1, start=1, end=3, note="empty"),
        ),
        _sliced,
        {
            "dim": integer(0, DIM.doc),
            "start": AttributeSpec(int, doc="the first"),
            "end": AttributeSpec(int, doc="the one after the last"),
            "step": AttributeSpec(int, 1, minimum=1, doc="distance"),
        },
        torch="torch.ops.aten.slice.Tensor",
    ),
    movement(
        "select",
        "One slice along dim, without that dimension.",
        (
            setup((4, 5), dim=0, index=2),
            setup((4, 5), dim=1, index=-1),
            setup((2, 3, 4), dim=1, index=1),
            setup((2, 3, 4), dim=-1, index=0),
            setup((33,), dim=0, index=31),
            setup((1,), dim=0, index=0, note="size 1"),
            setup((0, 3), dim=1, index=1, note="empty"),
            setup((2, 3, 4, 5), dim=2, index=-2),
        ),
        _selected,
        {"dim": DIM, "index": AttributeSpec(int, doc="which; negative ones count from the last")},
    ),
    movement(
        "movedim",
        "One dimension moved to another place.",
        (
            setup((4, 5), source=0, destination=1),
            setup((2, 3, 4), source=0, destination=2),
            setup((2, 3, 4), source=-1, destination=0),
            setup((2, 3, 4, 5), source=1, destination=-1),
            setup((2, 3, 4, 5), source=3, destination=1),
            setup((7,), source=0, destination=0),
            setup((1, 1), source=1, destination=0, note="size 1"),
            setup((0, 3), source=0, destination=1, note="empty"),
        ),
        _moved,
        {"source": AttributeSpec(int, doc="from"), "destination": AttributeSpec(int, doc="to")},
    ),
    movement(
        "rot90",
        "Turned k times by 90° from the first of dims towards the second.",
        (
            setup((3, 4)),
            setup((3, 4), k=2),
            setup((3, 4), k=3),
            setup((3, 4), k=-1),
            setup((2, 3, 4), dims=[1, 2]),
            setup((2, 3, 4), k=5, dims=[2, 0]),
            setup((1, 1), note="size 1"),
            setup((0, 3), note="empty"),
            setup((3, 4), k=4),
        ),
        _rotated,
        {"k": integer(1, "how often"), "dims": AttributeSpec(list, [0, 1], doc="the plane")},
        dtypes=(*MOVED, "int8"),
    ),
    movement(
        "unfold",
        "Windows along dimension, each as a new last dimension.",
        (
            setup((9,), dimension=0, size=3, step=1),
            setup((9,), dimension=0, size=3, step=2),
            setup((4, 8), dimension=1, size=4, step=4),
            setup((4, 8), dimension=0, size=2, step=1),
            setup((2, 7, 3), dimension=-2, size=3, step=3),
            setup((5,), dimension=0, size=5, step=1, note="one window"),
            setup((1,), dimension=0, size=1, step=1, note="size 1"),
            setup((0, 4), dimension=1, size=2, step=1, note="empty"),
        ),
        _unfolded,
        {
            "dimension": DIM,
            "size": AttributeSpec(int, minimum=1, doc="elements in a window"),
            "step": AttributeSpec(int, minimum=1, doc="distance of the windows"),
        },
        torch="torch.Tensor.unfold",
    ),
)
