"""Distances counted in units in the last place (ULP).

Every floating format whose bits are sign and magnitude orders its values like
its magnitudes, so a value maps to an integer (negative for a set sign bit) and
the distance of two values is the difference of two integers: the number of
representable steps between them, across binades, denormals and zero. Both zeros
map to 0; infinity is one step beyond the largest finite value. See B. Dawson,
"Comparing Floating Point Numbers" (2012).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import float_format, kind_of, native, real_part


def ordered(values: NDArray[Any]) -> NDArray[np.int64]:
    """Map real floating ``values`` to integers: v < w ⇔ ordered(v) < ordered(w).

    Shape kept, int64 for every format; +0 and −0 map to 0 and neighbours differ
    by 1. NaNs map to integers beyond infinity's that mean nothing.

    Raises ``TypeError`` for a dtype that is not real floating.
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
    """Representable steps between ``left`` and ``right``, element by element.

    Both have the same floating or complex dtype and broadcastable shapes; the
    distance of complex values is the larger one of their parts. Where either is
    NaN the number means nothing.

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
    """The distance between neighbouring values of ``dtype`` around ``magnitudes``.

    ``magnitudes`` are non-negative and of any wider real floating dtype; the
    answer is the upward gap at the largest power of two not above each, never
    less than the smallest subnormal nor more than the gap below the largest
    finite value (so it is finite for infinity and NaN too).
    """
    form = float_format(real_part(dtype))
    exponents = np.frexp(magnitudes)[1] - (form.mantissa_bits + 1)
    smallest, largest = form.ulp_exponents
    exponents = np.where(magnitudes == 0, smallest, np.clip(exponents, smallest, largest))
    return np.ldexp(1.0, np.where(np.isfinite(magnitudes), exponents, largest))
