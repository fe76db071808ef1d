"""Discrete Fourier transforms, named as in ``torch.fft``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape
from .build import COMPLEX, WIDE_FLOATS, alike, axes, axis, identity, need, operator, same, setup

_LENGTH = AttributeSpec((int, type(None)), None, minimum=1, doc="cut or filled with zeros to this length")
_NORM = AttributeSpec(
    (str, type(None)), None, choices=(None, "backward", "ortho", "forward"), doc="which direction is scaled"
)
_ATTRIBUTES = {"n": _LENGTH, "dim": AttributeSpec(int, -1, doc="the dimension"), "norm": _NORM}
_TO_COMPLEX = {"float32": "complex64", "float64": "complex128"}
_TO_REAL = {wide: name for name, wide in _TO_COMPLEX.items()}


def _complex_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    return (_TO_COMPLEX.get(dtypes[0], dtypes[0]),)


def _real_type(dtypes: DTypes, attributes: Mapping[str, Any]) -> DTypes:
    return (_TO_REAL[dtypes[0]],)


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    need(size >= 1, f"a transform needs one element at least; dim {dim} of {list(shape)} gives {size}")
    return (*shape[:dim], size, *shape[dim + 1 :])


def _same_length(shape: Shape, *, n: int | None, dim: int, norm: str | None) -> Shape:
    need(bool(shape), "a scalar has no dimension to transform")
    dim = axis(dim, len(shape))
    return _resized(shape, dim, shape[dim] if n is None else n)


def _half_length(shape: Shape, *, n: int | None, dim: int, norm: str | None) -> Shape:
    dim = axis(dim, len(shape))
    return _resized(shape, dim, _same_length(shape, n=n, dim=dim, norm=norm)[dim] // 2 + 1)


def _full_length(shape: Shape, *, n: int | None, dim: int, norm: str | None) -> Shape:
    need(bool(shape), "a scalar has no dimension to transform")
    dim = axis(dim, len(shape))
    return _resized(shape, dim, 2 * (shape[dim] - 1) if n is None else n)


def _plane(shape: Shape, *, s: tuple[int, ...] | None, dim: tuple[int, ...], norm: str | None) -> Shape:
    for one, size in zip(axes(tuple(dim), len(shape)), s or (None,) * len(dim), strict=True):
        shape = _resized(shape, one, shape[one] if size is None else size)
    return shape


def _setups(least: int) -> tuple[Setup, ...]:
    return (
        setup((8,)),
        setup((7,), note="odd length"),
        setup((3, 10), norm="ortho"),
        setup((6, 3), dim=0, norm="forward"),
        setup((2, 9, 3), dim=1, norm="backward"),
        setup((2, 12), n=7, note="cut"),
        setup((2, 5), n=8, note="filled"),
        setup((least,), note="short"),
        setup((1, 1, 6), note="size 1"),
        setup((33,), note="odd length"),
        setup((0, 6), note="empty"),
    )


def _transform(
    name: str,
    doc: str,
    dtypes: tuple[str, ...],
    shapes: Any,
    types: Any,
    setups: tuple[Setup, ...],
    attributes: Mapping[str, AttributeSpec] = _ATTRIBUTES,
    tags: tuple[str, ...] = ("reduction", "edge:nan-only", "differentiable"),
) -> OperatorDescriptor:
    return operator(
        name,
        "fft",
        doc,
        dtypes=alike(1, dtypes),
        setups=setups,
        shapes=shapes,
        torch=f"torch.fft.{name}",
        types=types,
        attributes=attributes,
        tags=tags,
    )


_PLANE_ATTRIBUTES = {
    "s": AttributeSpec((list, type(None)), None, doc="cut or filled with zeros to these lengths"),
    "dim": AttributeSpec(list, [-2, -1], doc="the dimensions"),
    "norm": _NORM,
}
_PLANES = (
    setup((4, 6)),
    setup((2, 5, 3)),
    setup((2, 5, 3), dim=[0, 2]),
    setup((4, 6), norm="ortho"),
    setup((4, 6), norm="forward"),
    setup((4, 6), s=[3, 8], note="cut and filled"),
    setup((1, 1), note="size 1"),
    setup((9, 7), note="odd length"),
    setup((0, 4, 6), note="empty"),
)
_SHIFT = AttributeSpec((int, list, type(None)), None, doc="which dimensions; null for all")
_SHIFTS = (
    setup((8,)),
    setup((7,), note="odd length"),
    setup((4, 5)),
    setup((4, 5), dim=1),
    setup((3, 4, 5), dim=[0, 2]),
    setup((1,), note="size 1"),
    setup((0, 3), note="empty"),
    setup((33,), note="odd length"),
)
_ANY_WIDE = WIDE_FLOATS + COMPLEX


def _shift(name: str, doc: str) -> OperatorDescriptor:
    return _transform(
        name, doc, (*_ANY_WIDE, "int32"), identity, same, _SHIFTS, {"dim": _SHIFT}, ("data-movement",)
    )


OPERATORS = (
    _transform("fft", "Σ x_k exp(−2πi jk / n).", _ANY_WIDE, _same_length, _complex_type, _setups(1)),
    _transform("ifft", "The inverse of fft.", _ANY_WIDE, _same_length, _complex_type, _setups(1)),
    _transform(
        "rfft",
        "fft of a real signal: the half that is not redundant.",
        WIDE_FLOATS,
        _half_length,
        _complex_type,
        _setups(1),
    ),
    _transform(
        "irfft",
        "The inverse of rfft; n is 2 · (size − 1) unless given.",
        COMPLEX,
        _full_length,
        _real_type,
        _setups(2),
    ),
    _transform(
        "fft2", "fft along two dimensions.", _ANY_WIDE, _plane, _complex_type, _PLANES, _PLANE_ATTRIBUTES
    ),
    _transform("ifft2", "The inverse of fft2.", _ANY_WIDE, _plane, _complex_type, _PLANES, _PLANE_ATTRIBUTES),
    _shift("fftshift", "Frequency 0 moved to the middle."),
    _shift("ifftshift", "The inverse of fftshift, which differs for odd sizes."),
)
