"""Sign, mantissa and exponent of floating-point numbers.

Subnormal numbers are split by their bits, because engines may flush them to
zero in arithmetic. Not here: rounding (``elementary``), classification
(``comparison``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOLEAN, FLOAT32, FLOAT64, FLOATING, INT32, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import copysign
from ..factories import lowers_binary
from ..promotion import broadcast, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

_REAL = ALL_INTEGRAL | FLOATING | BOOLEAN
_MANTISSA_BITS = {FLOAT32: 23, FLOAT64: 52}

lowers_binary(
    aten.copysign.Tensor,
    aten.copysign.Scalar,
    kernel=copysign,
    dtypes=_REAL,
)


@lowers(aten.nextafter.default, dtypes=_REAL)
def nextafter(self: Value, other: Value, *, out: Spec) -> Value:
    """The next number of the dtype after ``self`` in the direction of ``other``."""
    return hlo.next_after(*broadcast((self, other), out.dtype, out.shape))


@lowers(aten.frexp.Tensor, dtypes=FLOATING)
def frexp(self: Value, *, out: tuple[Spec, Spec]) -> tuple[Value, Value]:
    """Mantissa with 0.5 ≤ |m| < 1, and int32 exponent. Zero, infinity and NaN are their own mantissa."""
    x = hlo.convert(self, opmath(self.dtype))
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
    return (
        hlo.convert(hlo.select(plain, x, mantissa), out[0].dtype),
        hlo.convert(hlo.select(plain, 0, exponent - (bias - 1)), out[1].dtype),
    )
