"""Copies and changes of dtype, by value or by bits.

Values are immutable, so a copy is the value itself. Not here: real and imaginary
parts (``complex_numbers``), tensors made from shapes and numbers (``creation``), aliases and views
with another shape (``views``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import COPYABLE, UINT8, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import cast
from ..registry import Spec, lowers

aten = namespace("aten")
prims = namespace("prims")


@lowers(
    aten.clone.default,
    aten.contiguous.default,
    aten.lift.default,
    aten.lift_fresh.default,
    aten.lift_fresh_copy.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    prims.clone.default,
    dtypes=COPYABLE,
)
def identity(self: Value) -> Value:
    """The value itself."""
    return self


@lowers(prims.view_of.default, prims.device_put.default, dtypes=COPYABLE)
def view_of(a: Value) -> Value:
    """The value itself."""
    return a


@lowers(aten._to_copy.default, dtypes=COPYABLE, ignores=("dtype",))
def to_copy(self: Value, *, out: Spec) -> Value:
    """``self`` in ``dtype``."""
    return cast(self, out.dtype)


@lowers(prims.convert_element_type.default, dtypes=COPYABLE)
def convert_element_type(a: Value, dtype: DType) -> Value:
    """``a`` in ``dtype``."""
    return cast(a, dtype)


@lowers(aten.copy.default, dtypes=COPYABLE, ignores=("self",))
def copy(src: Value, *, out: Spec) -> Value:
    """``src`` with the shape and dtype of ``self``."""
    return hlo.broadcast_to(cast(src, out.dtype), out.shape)


@lowers(aten.view.dtype, dtypes=COPYABLE)
def view_dtype(self: Value, dtype: DType) -> Value:
    """Reinterpret the bytes as ``dtype``; the last axis grows or shrinks by the ratio of the widths."""
    return _from_bytes(_to_bytes(self, dtype), dtype)


def _to_bytes(x: Value, target: DType) -> Value:
    """``x`` with bools and complex numbers split into unsigned or real parts no wider than ``target``."""
    if x.dtype is target:
        return x
    if x.dtype.is_bool:
        return hlo.convert(x, UINT8)
    if x.dtype.is_complex:
        parts = hlo.concatenate([hlo.expand_dims(part, [-1]) for part in (hlo.real(x), hlo.imag(x))], x.rank)
        x = _merged(parts)
    narrow = UINT8 if target.is_bool else target.real
    if x.dtype.bits > narrow.bits:
        return _merged(hlo.bitcast(x, narrow))
    return x


def _from_bytes(x: Value, target: DType) -> Value:
    if x.dtype is target:
        return x
    if target.is_bool:
        return hlo.convert(x, target)
    if x.dtype.bits < target.real.bits:
        x = _split(x, target.real.bits // x.dtype.bits)
    x = hlo.bitcast(x, target.real)
    if not target.is_complex:
        return x
    pairs = _split(x, 2)
    re, im = (hlo.squeeze(hlo.slice_axis(pairs, pairs.rank - 1, i, i + 1), [-1]) for i in range(2))
    return hlo.complex_(re, im)


def _merged(x: Value) -> Value:
    """Merge the last two axes."""
    return hlo.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _split(x: Value, size: int) -> Value:
    """Split the last axis in two; the new last axis has ``size`` elements."""
    return hlo.reshape(x, (*x.shape[:-1], x.shape[-1] // size, size))
