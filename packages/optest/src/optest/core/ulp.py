"""Distances counted in units in the last place (ULP).

In a floating-point format whose bits are a sign and a magnitude, a larger magnitude means a larger absolute
value. So each value maps to an integer: its magnitude, which is negative if the sign bit is set. The distance
of two values is the difference of their integers, which is the number of representable steps between them,
across binades, denormals and zero. Both zeros map to 0, and infinity is one step beyond the largest finite
value. See B. Dawson, "Comparing Floating Point Numbers" (2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import float_format, kind_of, native, real_part


def ordered(values: NDArray[Any]) -> NDArray[np.int64]:
    """Map real floating ``values`` to integers: v < w ⇔ ordered(v) < ordered(w).

    The result has the same shape, and is int64 for every format. +0 and −0 map to 0, and neighbors differ by
    1. NaNs map to integers beyond those of infinity, which have no meaning.

    Raises ``TypeError`` for a dtype that is not real floating-point.
    """
    if kind_of(values.dtype) != "float":
        raise TypeError(f"only real floating values are ordered by their bits, not {values.dtype}")
    form = float_format(values.dtype)
    bits = np.ascontiguousarray(values, dtype=native(values.dtype)).reshape(values.shape)
    if values.dtype.itemsize == 8:
        raw = bits.view(np.int64)
    else:
        raw = bits.view(f"u{values.dtype.itemsize}").astype(np.int64)
    if not form.signed:
        return raw
    magnitude = raw & ((1 << (form.bits - 1)) - 1)
    return np.where(raw & (-1 << (form.bits - 1)), -magnitude, magnitude)


def ulp_distance(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the number of representable steps between ``left`` and ``right``, element by element.

    Both must have the same floating-point or complex dtype and broadcastable shapes. The distance of complex
    values is the larger one of the distances of their parts. If either value is NaN, the number has no
    meaning.

    Raises ``TypeError`` for other dtypes or two different ones.
    """
    if native(left.dtype) != native(right.dtype):
        raise TypeError(f"ULP distance needs one dtype, got {left.dtype} and {right.dtype}")
    if left.dtype.kind == "c":
        return np.maximum(ulp_distance(left.real, right.real), ulp_distance(left.imag, right.imag))
    first, second = ordered(left), ordered(right)
    # The distance of two float64 needs 64 bits: subtract modulo 2**64, larger minus smaller.
    high = np.maximum(first, second).view(np.uint64)
    low = np.minimum(first, second).view(np.uint64)
    return np.subtract(high, low, dtype=np.uint64)


def ulp_size(magnitudes: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.float64]:
    """Return the distance between neighboring values of ``dtype`` around ``magnitudes``.

    ``magnitudes`` are non-negative and have any wider real floating-point dtype. The result is the gap above
    the largest power of two that is not above the magnitude. It is at least the smallest subnormal and at
    most the gap below the largest finite value, so it is finite for infinity and NaN, too.
    """
    form = float_format(real_part(dtype))
    exponents = np.frexp(magnitudes)[1] - (form.mantissa_bits + 1)
    smallest, largest = form.ulp_exponents
    exponents = np.where(magnitudes == 0, smallest, np.clip(exponents, smallest, largest))
    return np.ldexp(1.0, np.where(np.isfinite(magnitudes), exponents, largest))
