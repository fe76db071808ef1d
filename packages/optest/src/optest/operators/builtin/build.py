"""Building blocks of the built-in descriptors: dtype sets, rules, common setups.

Shape rules are called the way PyTorch calls an operator, ``rule(*inputs, **attributes)``,
and :func:`operator` converts them to the form that a descriptor holds. The operators
themselves are in the category modules next to this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...core.roundoff import Rounding
from ...errors import ShapeError
from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape, Shapes
from ..domain import Domain

FLOATS = ("float16", "bfloat16", "float32", "float64")
WIDE_FLOATS = ("float32", "float64")
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
COMPLEX = ("complex64", "complex128")
BOOL = ("bool",)
REAL = FLOATS + INTEGERS
NUMBERS = REAL + COMPLEX
SAMPLE = ("float16", "bfloat16", "float32", "float64", "int32", "int64")
"""Dtypes for operators that only move or compare values, whose code is the same for all integer widths."""
MOVED = (*SAMPLE, "bool", "complex64", "uint8")

TypeRule = Callable[[DTypes, Mapping[str, Any]], DTypes]


def alike(count: int, names: Iterable[str], *others: str) -> tuple[DTypes, ...]:
    """Return one dtype tuple for each of ``names``: ``count`` inputs of that dtype, then ``others``."""
    return tuple((name,) * count + others for name in names)


def setup(*shapes: Shape, note: str = "", **attributes: Any) -> Setup:
    """Return a setup with the inputs' shapes in order."""
    return Setup({f"input{i}": shape for i, shape in enumerate(shapes)}, attributes, note)


def same(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    """Return the dtype of the first input, as a dtype rule."""
    return (dtypes[0],)


def gives(*names: str) -> TypeRule:
    """Return a rule for fixed output dtypes; ``"="`` stands for the first input's dtype."""
    return lambda dtypes, attributes: tuple(dtypes[0] if name == "=" else name for name in names)


def sum_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    """Return int64 for integers and bools, else the input's own dtype."""
    return ("int64" if dtypes[0] in INTEGERS + BOOL else dtypes[0],)


def real_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    """Return the dtype of an absolute value: float32 for complex64, float64 for complex128, else the same."""
    return ({"complex64": "float32", "complex128": "float64"}.get(dtypes[0], dtypes[0]),)


def broadcast(*shapes: Shape, **attributes: Any) -> Shape:
    """Return the shape that ``shapes`` broadcast to; raises :class:`ShapeError`."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = ", ".join(str(list(shape)) for shape in shapes)
        raise ShapeError(f"{text} do not broadcast: trailing dimensions must be equal or 1") from None


def identity(shape: Shape, **attributes: Any) -> Shape:
    """Return the input's shape, whatever the attributes are."""
    return shape


def need(condition: bool, text: str) -> None:
    """Raise :class:`ShapeError` with ``text`` unless ``condition`` holds."""
    if not condition:
        raise ShapeError(text)


def axis(dim: int, rank: int) -> int:
    """Return ``dim`` counted from the front; a scalar counts as having one dimension, as in PyTorch."""
    size = max(rank, 1)
    need(
        -size <= dim < size, f"dim {dim} is outside [{-size}, {size - 1}] of a tensor with {rank} dimensions"
    )
    return dim % size


def axes(dim: int | tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Return all of ``dim`` counted from the front; None and an empty list mean every dimension."""
    if dim is None or dim == ():
        return tuple(range(rank))
    found = tuple(axis(one, rank) for one in (dim if isinstance(dim, tuple) else (dim,)))
    need(len(set(found)) == len(found), f"dim {list(found)} names a dimension twice")
    return found if rank else ()


def reduced(shape: Shape, dims: tuple[int, ...], keepdim: bool) -> Shape:
    """Return ``shape`` without ``dims``, or with size 1 there if ``keepdim``."""
    if keepdim:
        return tuple(1 if i in dims else size for i, size in enumerate(shape))
    return tuple(size for i, size in enumerate(shape) if i not in dims)


def spread(value: int | tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    """Return one value per spatial dimension; a single value is repeated."""
    values = (value,) * count if isinstance(value, int) else tuple(value)
    if len(values) == 1:
        values *= count
    need(len(values) == count, f"{name} {list(values)} needs one entry or {count}")
    return values


DIM = AttributeSpec(int, doc="the dimension; negative ones count from the last")
KEEPDIM = AttributeSpec(bool, False, doc="leave reduced dimensions with size 1")
DIMS = AttributeSpec((int, list, type(None)), None, doc="the dimensions to reduce; null for all")


def operator(
    name: str,
    category: str,
    doc: str,
    *,
    dtypes: tuple[DTypes, ...],
    setups: tuple[Setup, ...],
    shapes: Callable[..., Any],
    torch: str,
    types: TypeRule = same,
    outputs: int = 1,
    attributes: Mapping[str, AttributeSpec] | None = None,
    domain: Mapping[str, Domain] | None = None,
    rounding: Rounding | None = None,
    tags: Iterable[str] = (),
    aliases: Iterable[str] = (),
    mutates: tuple[str, ...] = (),
) -> OperatorDescriptor:
    """Return a built-in descriptor.

    ``shapes(*input_shapes, **attributes)`` returns the output's shape, or a tuple of
    shapes for several ``outputs``. ``torch`` is the dotted name of PyTorch's equivalent
    and becomes the tag ``torch:NAME``. ``aliases`` name the inputs in order.

    Two tags say for which special inputs the operator is defined: ``edge:nan`` (NaN and
    infinities), ``edge:nan-only`` (NaN, which makes every result that depends on it NaN, but not
    infinities, whose effect depends on the order of the steps). Other tags describe the results:
    ``data-movement`` (elements of the inputs, unchanged), ``bounded`` (integers never leave
    the range of the inputs' dtype), ``exact`` (each result needs no rounding or a single
    rounding to nearest, so no error is allowed), ``signed-zero`` (the sign of a real zero is
    determined), ``few-bits`` (floats of at most 11 significant bits, which are exact in every
    narrower format with that many).
    """
    inputs = tuple(f"input{i}" for i in range(len(dtypes[0])))
    results = tuple(f"output{i}" for i in range(outputs))

    def output_shapes(given: Shapes, values: Mapping[str, Any]) -> dict[str, Shape]:
        found = shapes(*(tuple(given[one]) for one in inputs), **values)
        return dict(zip(results, (found,) if outputs == 1 else found, strict=True))

    return OperatorDescriptor(
        name=name,
        category=category,
        inputs=inputs,
        outputs=results,
        dtypes=dtypes,
        reference=f"optest.operators.reference_impls:{name}_reference",
        output_dtypes=types,
        output_shapes=output_shapes,
        attributes=attributes or {},
        domain=domain or {},
        rounding=rounding,
        tags=frozenset(tags) | {f"torch:{torch}"},
        setups=setups,
        doc=doc,
        aliases=dict(zip(aliases, inputs, strict=False)),
        mutates=mutates,
    )


UNARY_SETUPS = (
    setup((8, 33)),
    setup((2, 3, 4, 5)),
    setup((127,), note="odd length"),
    setup((3, 1, 1, 2, 7), note="5-d"),
    setup((64, 17)),
    setup((1,), note="size 1"),
    setup((), note="0-d"),
    setup((0,), note="empty"),
    setup((3, 0, 2), note="empty"),
)
BINARY_SETUPS = (
    setup((8, 33), (8, 33)),
    setup((4, 1, 3), (5, 1), note="broadcast"),
    setup((7,), (2, 3, 7), note="broadcast"),
    setup((129,), (129,), note="odd length"),
    setup((3, 4), (), note="0-d"),
    setup((), (), note="0-d"),
    setup((1,), (1,), note="size 1"),
    setup((0, 3), (1, 3), note="empty"),
    setup((2, 3, 4, 5), (1,), note="broadcast"),
)
TERNARY_SETUPS = (
    setup((8, 17), (8, 17), (8, 17)),
    setup((4, 1, 3), (5, 1), (3,), note="broadcast"),
    setup((7,), (2, 3, 7), (3, 1), note="broadcast"),
    setup((129,), (129,), (129,), note="odd length"),
    setup((3, 4), (), (4,), note="0-d"),
    setup((), (), (), note="0-d"),
    setup((1,), (1,), (1,), note="size 1"),
    setup((0, 3), (1, 3), (3,), note="empty"),
)
