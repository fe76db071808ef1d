"""Functions whose float32 expansion in StableHLO or XLA loses digits, computed without that loss.

Each is within a few ULPs over its whole domain (docs: accuracy). float64 and complex
values use the engine's own functions. Not here: special functions (``lowering.aten``).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .. import hlo
from ..dtypes import FLOAT32, FLOAT64
from ..hlo import Value
from .common import copysign, split
from .series import choose, polynomial


def in_double(kernel: Callable[..., Value]) -> Callable[..., Value]:
    """Return a function that runs ``kernel`` in float64 and rounds its result once to the operands' dtype.

    The operands are real and have one dtype.
    """

    def function(*operands: Value) -> Value:
        wide = [hlo.convert(operand, FLOAT64) for operand in operands]
        return hlo.convert(kernel(*wide), operands[0].dtype)

    function.__doc__ = kernel.__doc__
    return function


# x² times this is exp(x) - 1 - x: 1/n! for n = 12 … 2, enough for |x| ≤ 1
_EXPM1 = tuple(1 / math.factorial(n) for n in range(12, 1, -1))


def expm1(x: Value) -> Value:
    """``exp(self) - 1`` without cancellation."""
    if x.dtype is not FLOAT32:
        return hlo.exponential_minus_one(x)
    small = hlo.clamp(-1.0, x, 1.0)
    near = small + small * small * polynomial(small, _EXPM1)
    # For larger numbers, the exponential is at most 1.6 times as far from 0 as the result.
    return hlo.select(hlo.abs_(x) < 1.0, hlo.select(hlo.eq(x, 0.0), x, near), hlo.exponential(x) - 1.0)


def _near_one(x: Value) -> tuple[Value, Value]:
    """Split ``x`` into ``m`` and a whole number ``n`` with x = m · 2ⁿ and 0.5 ≤ m < 2.

    ``n`` is 0 or has the sign of log(m). For zero, infinity and NaN, ``m`` is ``x``. For a negative number,
    ``m`` is negative too.
    """
    mantissa, exponent = split(x)
    large = x >= 1.0
    whole = hlo.convert(hlo.select(large, exponent - 1, exponent), x.dtype)
    return hlo.select(large, mantissa * 2.0, mantissa), whole


def log2(x: Value) -> Value:
    """Logarithm to base 2 of real numbers, exact for powers of two."""
    rest, whole = _near_one(x)
    return hlo.log(rest) * (1.0 / math.log(2.0)) + whole


# log10(2) in two parts: the first has so few bits that its multiples are exact (FreeBSD, msun/src/e_log10.c).
_LOG10_2 = {
    FLOAT32: (3.0102920532e-01, 7.9034151668e-07),
    FLOAT64: (3.01029995663611771306e-01, 3.69423907715893078616e-13),
}


def log10(x: Value) -> Value:
    """Logarithm to base 10 of real numbers, whole for powers of ten."""
    rest, whole = _near_one(x)
    first, second = _LOG10_2[x.dtype]
    return whole * first + (whole * second + hlo.log(rest) * (1.0 / math.log(10.0)))


def _halved_exponential(size: Value) -> Value:
    """``exp(size) / 2`` for size ≥ 0; finite even where only ``exp(size)`` overflows."""
    far = hlo.exponential(size - 1.0) * (math.e / 2)  # The subtraction is exact for sizes from 1 on.
    return hlo.select(size < 80.0, hlo.exponential(size) * 0.5, far)


def sinh(x: Value) -> Value:
    """Hyperbolic sine."""
    if x.dtype is not FLOAT32:
        return hlo.sinh(x)
    size = hlo.abs_(x)
    less_one = expm1(hlo.minimum(size, 1.0))
    near = (less_one + less_one / (less_one + 1.0)) * 0.5
    half = _halved_exponential(size)
    far = half - 0.25 / half
    # Squares of the smallest numbers would be flushed to zero.
    return choose(copysign(hlo.select(size < 1.0, near, far), x), (size < 1e-4, x))


def cosh(x: Value) -> Value:
    """Hyperbolic cosine."""
    if x.dtype is not FLOAT32:
        return hlo.cosh(x)
    half = _halved_exponential(hlo.abs_(x))
    return half + 0.25 / half


# For |x| ≤ 1, x³ times this polynomial in x² is tanh(x) - x, to 1e-8 (interpolated at Chebyshev nodes)
_TANH = (
    0.0001341780836,
    -0.0008946191377,
    0.003168938641,
    -0.00867336109,
    0.02182146969,
    -0.05396215441,
    0.1333330334,
    -0.3333333309,
)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent: within one ULP, so that differences from its operand keep their digits."""
    if x.dtype is not FLOAT32:
        return hlo.tanh(x)
    size = hlo.abs_(x)
    small = hlo.minimum(size, 1.0)
    square = small * small
    near = small + small * square * polynomial(square, _TANH)
    # Beyond this the result is 1, and the exponential is still far from overflow.
    far = 1.0 - 2.0 / (hlo.exponential(hlo.minimum(size, 16.0) * 2.0) + 1.0)
    return copysign(hlo.select(size < 1.0, near, far), x)


def asin(x: Value) -> Value:
    """Inverse sine."""
    if x.dtype is not FLOAT32:
        return hlo.asin(x)
    # Near zero asin(x) is x. The expansion halves x, which flushes the smallest numbers to zero.
    return hlo.select(hlo.abs_(x) < 1e-4, x, hlo.asin(x))
