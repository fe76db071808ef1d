"""Products of matrices and vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.roundoff import Sums
from ..descriptor import AttributeSpec, OperatorDescriptor, Setup, Shape
from .build import COMPLEX, FLOATS, alike, broadcast, need, operator, setup

_TYPES = (*FLOATS, "int32", "int64", *COMPLEX)
_ALPHA = AttributeSpec((int, float), 1, doc="the factor of the product")
_BETA = AttributeSpec((int, float), 1, doc="the factor of input0; with 0 not even its NaN counts")


def _product(
    name: str,
    doc: str,
    inputs: int,
    setups: tuple[Setup, ...],
    shapes: Any,
    *,
    dtypes: tuple[str, ...] = _TYPES,
    attributes: Mapping[str, AttributeSpec] | None = None,
    torch: str = "",
    addend: str | None = None,
    aliases: tuple[str, ...] = (),
) -> OperatorDescriptor:
    return operator(
        name,
        "gemm",
        doc,
        dtypes=alike(inputs, dtypes),
        setups=setups,
        shapes=shapes,
        torch=torch or f"torch.{name}",
        attributes=attributes,
        rounding=Sums(addend),
        tags=("reduction", "differentiable", "edge:nan-only"),
        aliases=aliases,
    )


def matmul_shape(left: Shape, right: Shape) -> Shape:
    """Return the shape by ``torch.matmul``'s rule: vectors lose their dimension, leading ones broadcast."""
    need(bool(left) and bool(right), "a scalar has no dimension to multiply along; both need one at least")
    inner = right[-2] if len(right) > 1 else right[0]
    need(left[-1] == inner, f"{list(left)} and {list(right)} do not fit: {left[-1]} columns, {inner} rows")
    batch = broadcast(left[:-2], right[:-2])
    return batch + left[-2:-1] + (right[-1:] if len(right) > 1 else ())


def _ranked(rank: int, *shapes: Shape) -> None:
    for shape in shapes:
        need(len(shape) == rank, f"{list(shape)} has {len(shape)} dimensions; this operator takes {rank}")


def _mm_shape(left: Shape, right: Shape) -> Shape:
    _ranked(2, left, right)
    return matmul_shape(left, right)


def _bmm_shape(left: Shape, right: Shape) -> Shape:
    _ranked(3, left, right)
    need(left[0] == right[0], f"{left[0]} and {right[0]} matrices: both batches must be of one size")
    return matmul_shape(left, right)


def _mv_shape(matrix: Shape, vector: Shape) -> Shape:
    _ranked(2, matrix)
    _ranked(1, vector)
    return matmul_shape(matrix, vector)


def _dot_shape(left: Shape, right: Shape) -> Shape:
    _ranked(1, left, right)
    return matmul_shape(left, right)


def _outer_shape(left: Shape, right: Shape) -> Shape:
    _ranked(1, left, right)
    return left + right


def _expands(added: Shape, product: Shape) -> Shape:
    fits = len(added) <= len(product) and broadcast(added, product) == product
    need(fits, f"{list(added)} does not expand to the product's {list(product)}")
    return product


def _addmm_shape(added: Shape, left: Shape, right: Shape, **attributes: Any) -> Shape:
    return _expands(added, _mm_shape(left, right))


def _baddbmm_shape(added: Shape, left: Shape, right: Shape, **attributes: Any) -> Shape:
    return _expands(added, _bmm_shape(left, right))


def _gemm_shape(
    left: Shape, right: Shape, added: Shape, *, transpose_a: bool, transpose_b: bool, **attributes: Any
) -> Shape:
    _ranked(2, left, right)
    return _addmm_shape(added, left[::-1] if transpose_a else left, right[::-1] if transpose_b else right)


def _linear_shape(inputs: Shape, weight: Shape, bias: Shape) -> Shape:
    _ranked(2, weight)
    need(bool(inputs) and inputs[-1] == weight[1], f"the last size of {list(inputs)} must be {weight[1]}")
    need(bias == (weight[0],), f"the bias {list(bias)} must be [{weight[0]}]")
    return (*inputs[:-1], weight[0])


def _bilinear_shape(left: Shape, right: Shape, weight: Shape, bias: Shape) -> Shape:
    _ranked(3, weight)
    need(
        bool(left) and left[:-1] == right[:-1],
        f"{list(left)} and {list(right)} must agree but for the last size",
    )
    fits = (left[-1], right[-1]) == weight[1:] and bias == weight[:1]
    need(fits, f"weight {list(weight)} and bias {list(bias)} do not fit {list(left)} and {list(right)}")
    return (*left[:-1], weight[0])


_MATRICES = (
    setup((4, 7), (7, 5)),
    setup((16, 33), (33, 9)),
    setup((1, 1), (1, 1), note="size 1"),
    setup((1, 64), (64, 1), note="row by column"),
    setup((5, 1), (1, 6), note="column by row"),
    setup((0, 3), (3, 4), note="empty"),
    setup((2, 0), (0, 3), note="empty sum"),
    setup((31, 2), (2, 17), note="odd sizes"),
)
_BATCHES = (
    setup((3, 4, 5), (3, 5, 2)),
    setup((1, 7, 3), (1, 3, 7), note="one matrix"),
    setup((2, 1, 9), (2, 9, 1)),
    setup((8, 2, 2), (8, 2, 2)),
    setup((0, 2, 3), (0, 3, 2), note="empty"),
    setup((2, 3, 0), (2, 0, 4), note="empty sum"),
    setup((2, 0, 3), (2, 3, 4), note="empty"),
    setup((2, 5, 40), (2, 40, 3)),
)


def _with(added: Shape, base: Setup, **attributes: Any) -> Setup:
    return setup(added, *base.shapes.values(), note=base.note, **attributes)


OPERATORS = (
    _product(
        "gemm",
        "alpha · op(input0) @ op(input1) + beta · input2, where op transposes on demand.",
        3,
        (
            setup((4, 7), (7, 5), (4, 5)),
            setup((7, 4), (7, 5), (4, 5), transpose_a=True),
            setup((4, 7), (5, 7), (4, 5), transpose_b=True),
            setup((5, 5), (5, 5), (5, 5), transpose_a=True, note="square"),
            setup((5, 5), (5, 5), (5, 5), transpose_b=True, note="square"),
            setup((7, 4), (5, 7), (5,), transpose_a=True, transpose_b=True, note="broadcast"),
            setup((16, 33), (33, 9), (16, 9), alpha=2, beta=3),
            setup((3, 4), (4, 3), (), beta=-1, note="broadcast"),
            setup((3, 3), (3, 3), (3, 3), beta=0),
            setup((1, 1), (1, 1), (1, 1), note="size 1"),
            setup((0, 3), (3, 4), (0, 4), note="empty"),
            setup((2, 0), (0, 3), (2, 3), note="empty sum"),
        ),
        _gemm_shape,
        attributes={
            "transpose_a": AttributeSpec(bool, False, doc="whether input0 is transposed"),
            "transpose_b": AttributeSpec(bool, False, doc="whether input1 is transposed"),
            "alpha": _ALPHA,
            "beta": AttributeSpec((int, float), 1, doc="the factor of input2"),
        },
        torch="torch.addmm",
        aliases=("a", "b", "c"),
        addend="input2",
    ),
    _product(
        "matmul",
        "The matrix product; vectors lose their dimension, leading dimensions broadcast.",
        2,
        (
            *_MATRICES,
            setup((7,), (7,), note="vectors"),
            setup((7,), (7, 3), note="vector"),
            setup((3, 7), (7,), note="vector"),
            setup((2, 1, 3, 4), (5, 4, 2), note="broadcast"),
            setup((5, 4, 2), (2,), note="vector"),
        ),
        matmul_shape,
    ),
    _product("mm", "The product of two matrices.", 2, _MATRICES, _mm_shape),
    _product("bmm", "The products of two batches of matrices.", 2, _BATCHES, _bmm_shape),
    _product(
        "addmm",
        "beta · input0 + alpha · input1 @ input2.",
        3,
        (
            *(_with((one.shapes["input0"][0], one.shapes["input1"][1]), one) for one in _MATRICES),
            _with((5,), _MATRICES[0], beta=2, alpha=3),
            _with((4, 1), _MATRICES[0], beta=0),
            _with((), _MATRICES[0], alpha=-1),
        ),
        _addmm_shape,
        attributes={"beta": _BETA, "alpha": _ALPHA},
        addend="input0",
    ),
    _product(
        "baddbmm",
        "beta · input0 + alpha · input1 @ input2, for batches of matrices.",
        3,
        (
            *(_with((one.shapes["input0"][0], 1, one.shapes["input1"][2]), one) for one in _BATCHES),
            _with((3, 4, 2), _BATCHES[0], beta=2, alpha=3),
            _with((4, 2), _BATCHES[0], beta=0),
        ),
        _baddbmm_shape,
        attributes={"beta": _BETA, "alpha": _ALPHA},
        addend="input0",
    ),
    _product(
        "mv",
        "A matrix times a vector.",
        2,
        (
            setup((4, 7), (7,)),
            setup((33, 16), (16,)),
            setup((1, 1), (1,), note="size 1"),
            setup((1, 65), (65,)),
            setup((65, 1), (1,)),
            setup((0, 3), (3,), note="empty"),
            setup((3, 0), (0,), note="empty sum"),
            setup((5, 5), (5,)),
        ),
        _mv_shape,
        dtypes=_TYPES,
    ),
    _product(
        "dot",
        "The sum of the products of two vectors; complex ones are not conjugated.",
        2,
        tuple(
            setup((n,), (n,), note=note)
            for n, note in (
                (7, ""),
                (33, ""),
                (128, ""),
                (2, ""),
                (3, ""),
                (64, ""),
                (1, "size 1"),
                (0, "empty sum"),
            )
        ),
        _dot_shape,
    ),
    _product(
        "outer",
        "Every element of one vector times every element of another.",
        2,
        tuple(
            setup((m,), (n,), note=note)
            for m, n, note in (
                (4, 7, ""),
                (7, 4, ""),
                (33, 2, ""),
                (1, 9, ""),
                (9, 1, ""),
                (1, 1, "size 1"),
                (0, 3, "empty"),
                (3, 0, "empty"),
            )
        ),
        _outer_shape,
    ),
    _product(
        "linear",
        "input0 @ weightᵀ + bias.",
        3,
        (
            setup((4, 7), (5, 7), (5,)),
            setup((2, 3, 16), (9, 16), (9,)),
            setup((33,), (2, 33), (2,), note="vector"),
            setup((1, 1), (1, 1), (1,), note="size 1"),
            setup((0, 3), (4, 3), (4,), note="empty"),
            setup((2, 0), (3, 0), (3,), note="empty sum"),
            setup((2, 2, 2, 4), (3, 4), (3,)),
            setup((6, 1), (8, 1), (8,)),
        ),
        _linear_shape,
        dtypes=FLOATS,
        torch="torch.nn.functional.linear",
        aliases=("input", "weight", "bias"),
        addend="input2",
    ),
    _product(
        "bilinear",
        "Σ input0_i · weight_kij · input1_j + bias_k.",
        4,
        (
            setup((4, 3), (4, 5), (2, 3, 5), (2,)),
            setup((2, 3, 4), (2, 3, 2), (5, 4, 2), (5,)),
            setup((1, 1), (1, 1), (1, 1, 1), (1,), note="size 1"),
            setup((7,), (3,), (2, 7, 3), (2,), note="vector"),
            setup((0, 3), (0, 5), (2, 3, 5), (2,), note="empty"),
            setup((6, 2), (6, 2), (1, 2, 2), (1,)),
            setup((3, 8), (3, 1), (4, 8, 1), (4,)),
            setup((2, 1), (2, 9), (3, 1, 9), (3,)),
        ),
        _bilinear_shape,
        dtypes=FLOATS,
        torch="torch.nn.functional.bilinear",
        aliases=("left", "right", "weight", "bias"),
        addend="input3",
    ),
)
