"""Small pieces of math that several operator families share.

Not here: dtype promotion and broadcasting (``promotion``), one-line registration
(``factories``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from .. import hlo
from ..dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8,
    FLOAT8_E4M3FN,
    FLOAT8_E8M0FNU,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
)
from ..errors import UnsupportedShape
from ..hlo import Value

_NARROW_FLOATS = FLOAT8 | {FLOAT16, BFLOAT16}
_NARROW_INTEGERS = frozenset({INT8, INT16, UINT8, UINT16, UINT32})
_LARGEST_E4M3FN = 448.0
_MANTISSA_BITS = {FLOAT32: 23, FLOAT64: 52}


def cast(x: Value, dtype: DType) -> Value:
    """Convert ``x`` to another dtype as PyTorch's CPU copy does (c10/util/TypeCast.h).

    Conversions to narrow floats go through float32, where float8_e4m3fn saturates.
    Floats become integers through int64, so values that do not fit wrap around. Beyond
    int64, beyond int32 for int32, and for NaN, the result depends on the engine; C++
    leaves it undefined too.
    """
    if x.dtype is dtype:
        return x
    if not dtype.is_complex and not dtype.is_bool:
        x = hlo.real(x)
    if dtype in _NARROW_FLOATS or x.dtype in FLOAT8:
        x = hlo.convert(x, FLOAT32)
    if dtype is FLOAT8_E8M0FNU:
        return _power_of_two(x)
    if dtype is FLOAT8_E4M3FN:
        x = hlo.clamp(-_LARGEST_E4M3FN, x, _LARGEST_E4M3FN)
    elif x.dtype.is_floating and dtype in _NARROW_INTEGERS:
        x = hlo.convert(x, INT64)
    elif x.dtype.is_floating and dtype is UINT64:
        return hlo.select(x < 0, hlo.convert(hlo.convert(x, INT64), dtype), hlo.convert(x, dtype))
    return hlo.convert(x, dtype)


def _power_of_two(x: Value) -> Value:
    """Convert float32 to float8_e8m0fnu: only the exponent, no sign (torch/headeronly/util/Float8_e8m0fnu.h).

    Ties round up. Zero becomes 2⁻¹²⁷, the smallest number of that dtype.
    """
    bits = hlo.bitcast(x, UINT32)
    exponent = hlo.shift_right_logical(bits, 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    up = (mantissa > 0x400000) | (hlo.eq(mantissa, 0x400000) & (exponent > 0))
    rounded = hlo.select(up & (exponent < 0xFF), exponent + 1, exponent)
    return hlo.bitcast(hlo.convert(rounded, UINT8), FLOAT8_E8M0FNU)


def copysign(x: Value, sign: Value) -> Value:
    """``|x|`` with the sign bit of ``sign`` (real values)."""
    size = hlo.abs_(x)
    return hlo.select(hlo.signbit(sign), -size, size)


def split(x: Value) -> tuple[Value, Value]:
    """Split float32 or float64 into a mantissa with 0.5 ≤ |m| < 1 and an integer exponent of ``x``'s width.

    Zero, infinity and NaN are their own mantissa. Subnormal numbers are split by their
    bits, because engines may flush them to zero in arithmetic.
    """
    width, low = x.dtype.bits, _MANTISSA_BITS[x.dtype]
    integer = INT64 if width == 64 else INT32
    largest = (1 << (width - 1 - low)) - 1
    bits = hlo.bitcast(x, integer)
    fraction = bits & ((1 << low) - 1)
    exponent = hlo.shift_right_logical(bits, low) & largest
    # Not bits << 1 == 0: LLVM turns it into a float comparison, which may treat a subnormal as zero.
    zero = hlo.eq(fraction | exponent, 0)
    # Shift a subnormal fraction until its leading one reaches the place of the hidden bit.
    shift = hlo.count_leading_zeros(fraction) - (width - 1 - low)
    subnormal = hlo.eq(exponent, 0) & hlo.ne(fraction, 0)
    exponent = hlo.select(subnormal, 1 - shift, exponent)
    fraction = hlo.select(subnormal, hlo.shift_left(fraction, shift) & ((1 << low) - 1), fraction)
    bias = largest >> 1
    sign = bits & (-1 << (width - 1))
    mantissa = hlo.bitcast(sign | fraction | ((bias - 1) << low), x.dtype)
    plain = zero | hlo.eq(exponent, largest)
    return hlo.select(plain, x, mantissa), hlo.select(plain, 0, exponent - (bias - 1))


def magnitude(x: Value) -> Value:
    """``|x|``; infinity for a complex value with an infinite part, whatever the other part is."""
    size = hlo.abs_(x)
    return hlo.select(is_infinite(x), hlo.full_like(size, float("inf")), size) if x.dtype.is_complex else size


def truncate(x: Value) -> Value:
    """A real floating-point value rounded toward zero (−0.0 keeps its sign)."""
    return hlo.select(x < 0, hlo.ceil(x), hlo.floor(x))


def is_infinite(x: Value) -> Value:
    """True where an element is ±inf (for complex values, in either part)."""
    if x.dtype.is_complex:
        return is_infinite(hlo.real(x)) | is_infinite(hlo.imag(x))
    if not x.dtype.is_floating:
        return hlo.full(x.shape, False, BOOL)
    return hlo.eq(hlo.abs_(x), float("inf"))


NOTHING_TO_DO = "PyTorch takes this dtype only where there is nothing to do: no elements, or one"
"""The reason for gaps in dtypes that eager PyTorch only appears to accept."""

# Axes and shapes ------------------------------------------------------------------


def axis_of(dim: int, rank: int) -> int:
    """Convert a dimension number, which may be negative, to an axis (0 for a 0-d value, as in PyTorch)."""
    return dim % rank if rank else 0


def axes_of(dim: int | Sequence[int] | None, rank: int) -> list[int]:
    """The sorted axes for a ``dim`` argument; None and ``[]`` mean all axes."""
    if rank == 0:
        return []
    if dim is None or dim == []:
        return list(range(rank))
    return sorted({axis_of(d, rank) for d in ([dim] if isinstance(dim, int) else dim)})


def is_empty(shape: Sequence[hlo.Dim]) -> bool:
    """True if a dimension is known to be 0."""
    return any(hlo.same_dim(dim, 0) for dim in shape)


def counter(*sizes: hlo.Dim) -> DType:
    """Return int32, which halves the memory traffic, if it can count up to each of ``sizes``; else int64."""
    return INT32 if all(isinstance(size, int) and size < 1 << 31 for size in sizes) else INT64


def at_least_1d(x: Value) -> Value:
    """Return ``x``, reshaped to one axis of size 1 if it is 0-d."""
    return x if x.rank else hlo.reshape(x, (1,))


def flatten(x: Value) -> Value:
    """All elements in row-major order, along one axis."""
    return hlo.reshape(x, (x.numel,))


def fill(value: Value, shape: Sequence[hlo.Dim]) -> Value:
    """A 0-d value repeated over ``shape``."""
    return hlo.broadcast_to(value, shape)


def restore(reduced: Value, shape: Sequence[hlo.Dim], axes: Sequence[int]) -> Value:
    """Broadcast the result of a reduction over ``axes`` back to ``shape``."""
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    return hlo.broadcast_in_dim(reduced, shape, kept)


def count_of(x: Value, axes: Sequence[int], dtype: DType) -> Value:
    """The number of elements along ``axes`` as a 0-d value of ``dtype``."""
    count = hlo.product([x.shape[axis] for axis in axes])
    return hlo.convert(hlo.dim_scalar(count), dtype)


def mean_over(x: Value, axes: Sequence[int]) -> Value:
    """Mean over ``axes`` in the value's own dtype; NaN over no elements."""
    total = hlo.reduce_sum(x, axes)
    return total / fill(count_of(x, axes, x.dtype), total.shape)


def static_size(size: hlo.Dim, purpose: str) -> int:
    """Return ``size`` as an int. Raise :class:`UnsupportedShape`, naming ``purpose``, if it is symbolic."""
    known = hlo.static_dim(size)
    if known is None:
        raise UnsupportedShape(
            f"{purpose} needs a static size, found the symbol {size}",
            hint="mark this dimension static, or export the program once per size",
        )
    return known


def center(x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Mean of ``x`` over ``axes``, deviations from it, and the sum of their squared magnitudes (real).

    Uses the corrected two-pass algorithm (Chan, Golub and LeVeque 1983): the deviations
    reveal the rounding error of the mean, which is then removed.
    """
    rough = mean_over(x, axes)
    deviation = x - restore(rough, x.shape, axes)
    slip = mean_over(deviation, axes)
    squares = hlo.reduce_sum(_squared(deviation), axes)
    excess = _squared(slip) * fill(count_of(x, axes, squares.dtype), squares.shape)
    # Where the excess overflows, the squares overflow too, and their difference would be NaN.
    squares = squares - hlo.select(hlo.is_finite(excess), excess, 0.0)
    return rough + slip, deviation - restore(slip, x.shape, axes), hlo.maximum(squares, 0.0)


def unit_of(x: Value, axes: Sequence[int]) -> Value:
    """A power of two (real) near the largest magnitude over ``axes``; 1 where that is zero or not finite.

    Dividing ``x`` by it keeps squares within the range of the dtype. Its reciprocal is a normal number: in
    float32, the result is at most 2¹²⁶.
    """
    parts = [hlo.real(x), hlo.imag(x)] if x.dtype.is_complex else [x]
    largest = functools.reduce(hlo.maximum, (hlo.reduce_max(hlo.abs_(part), axes) for part in parts))
    width, low = largest.dtype.bits, _MANTISSA_BITS[largest.dtype]
    exponent = (1 << (width - 1)) - (1 << low)
    power = hlo.bitcast(hlo.bitcast(largest, INT64 if width == 64 else INT32) & exponent, largest.dtype)
    usable = hlo.is_finite(largest) & (power > 0.0)
    return hlo.select(usable, hlo.minimum(power, 2.0 ** ((1 << (width - 2 - low)) - 2)), 1.0)


def by_parts(kernel: Callable[[Value], Value], x: Value) -> Value:
    """Apply a real-linear ``kernel`` to each part of a complex value, so that infinities do not mix."""
    if x.dtype.is_complex:
        return hlo.complex_(kernel(hlo.real(x)), kernel(hlo.imag(x)))
    return kernel(x)


def _squared(x: Value) -> Value:
    """Squared magnitude (real)."""
    if not x.dtype.is_complex:
        return x * x
    re, im = hlo.real(x), hlo.imag(x)
    return re * re + im * im
