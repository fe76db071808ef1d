"""The bits of elements: reinterpreted as another dtype, and signs.

Not here: operations on the bits of integers (:mod:`.elementwise`).
"""

from __future__ import annotations

import functools

from ..dtypes import BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, DType
from ..errors import LoweringBug
from ._mlir import stablehlo
from .dimensions import is_static, same_dim
from .elementwise import convert, shift_left, shift_right_logical
from .shape import concatenate, expand_dims, slice_axis, squeeze
from .value import Value, full, tensor_type

_SIGNED = {8: INT8, 16: INT16, 32: INT32, 64: INT64}
_UNSIGNED = {8: UINT8, 16: UINT16, 32: UINT32, 64: UINT64}


def bitcast(x: Value, dtype: DType) -> Value:
    """Reinterpret the bits as another dtype.

    A narrower dtype adds a last axis with the parts, least significant first. A wider
    one removes the last axis, which must hold exactly the parts of one element.
    """
    have, want = x.dtype.bits, dtype.bits
    if have < want and (not x.rank or not same_dim(x.shape[-1], want // have)):
        raise LoweringBug(
            f"bitcast of {x!r} to {dtype}: the last axis does not hold the parts of one element"
        )
    if have != want and not is_static(x.shape):  # XLA cannot refine a bitcast that changes the rank
        bits = bitcast(x, _UNSIGNED[have])
        return bitcast(_parts(bits, want) if have > want else _whole(bits, want), dtype)
    shape = x.shape
    if have > want:
        shape = (*shape, have // want)
    elif have < want:
        shape = shape[:-1]
    return Value(stablehlo.bitcast_convert(tensor_type(shape, dtype), x.ir), shape, dtype)


def _parts(bits: Value, width: int) -> Value:
    """Split unsigned integers into parts of ``width`` bits along a new last axis."""
    mask = (1 << width) - 1
    parts = [shift_right_logical(bits, place) & mask for place in range(0, bits.dtype.bits, width)]
    return concatenate([expand_dims(convert(part, _UNSIGNED[width]), [-1]) for part in parts], bits.rank)


def _whole(parts: Value, width: int) -> Value:
    """Join parts along the last axis to unsigned integers of ``width`` bits."""
    wide, last = convert(parts, _UNSIGNED[width]), parts.rank - 1
    placed = [
        shift_left(squeeze(slice_axis(wide, last, part, part + 1), [last]), part * parts.dtype.bits)
        for part in range(width // parts.dtype.bits)
    ]
    return functools.reduce(Value.__or__, placed)


def signbit(x: Value) -> Value:
    """True where the sign bit of a real element is set (−0.0 and negative NaN included)."""
    if x.dtype.is_unsigned:
        return full(x.shape, False, BOOL)
    if x.dtype.is_integer:
        return x < 0
    return bitcast(x, _SIGNED[x.dtype.bits]) < 0
