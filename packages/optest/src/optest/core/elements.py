"""Elementwise parts of the comparator: walking arrays, errors, signs, and the worst element.

Each function takes plain arrays of the same shape. ``compare`` silences the floating-point warnings for all
of them, and reaches the verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import native
from .tolerance import Tolerance

_BLOCK = 1 << 15  # elements at a time: temporaries stay in cache and are small compared to the arrays
_TINY = 5e-324  # marks a mismatch that no other metric shows: the sign of a zero

Array = NDArray[Any]


def blocks(*arrays: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Walk arrays of the same shape in C order; yield a flat offset and a 1-D piece of each array.

    Pieces are in native byte order and valid until the next step. Contiguous native arrays are not copied.
    """
    walk = np.nditer(
        arrays,
        flags=["external_loop", "buffered", "zerosize_ok"],
        order="C",
        op_dtypes=[native(array.dtype) for array in arrays],
        buffersize=_BLOCK,
    )
    offset = 0
    with walk:
        for pieces in walk:
            yield offset, pieces
            offset += pieces[0].size


def errors(got: Array, want: Array, tolerance: Tolerance) -> tuple[Array, Array]:
    """Return |got − want|, and the excess over the limit, which is > 0 exactly for a mismatch.

    Values that agree without any tolerance, such as equal infinities, have error 0
    and excess −inf. Infinities that disagree have error and excess inf; a NaN that
    disagrees has error NaN and excess inf. No finite value is near an infinity.
    """
    error = np.abs(got - want)
    excess = error - (tolerance.atol + tolerance.rtol * np.abs(want))
    special = ~np.isfinite(error)
    if special.any():
        got, want = got[special], want[special]
        agree = same(got, want, tolerance)
        nan = np.isnan(got) | np.isnan(want)
        error[special] = np.where(agree, 0.0, np.where(nan, np.nan, np.inf))
        excess[special] = np.inf
    excess[error == 0] = -np.inf
    return error, excess


def same(left: Array, right: Array, tolerance: Tolerance) -> Array:
    """Return a mask of values that are equal, or both NaN if the tolerance has ``equal_nan``."""
    equal: Array = np.asarray(left == right)
    return equal | (np.isnan(left) & np.isnan(right)) if tolerance.equal_nan else equal


def sign_differences(got: Array, want: Array) -> tuple[Array, Array]:
    """Return masks of nonzero values and of zeros that differ in sign (complex: in either part)."""
    signs = zeros = np.zeros(got.shape, dtype=bool)
    pairs = ((got.real, want.real), (got.imag, want.imag)) if got.dtype.kind == "c" else ((got, want),)
    for left, right in pairs:
        differ = np.signbit(left) != np.signbit(right)
        if differ.any():
            signs = signs | differ & (np.abs(left) > 0) & (np.abs(right) > 0)  # NaN is not above 0
            zeros = zeros | differ & (left == 0) & (right == 0)
    return signs, zeros


def widened(values: Array) -> Array:
    """Convert floats to float64 and complex numbers to complex128, which is exact for all dtypes compared."""
    return values.astype(wide_dtype(values.dtype), copy=False)


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype to which :func:`widened` converts a floating-point or complex ``dtype``."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def insist_on_zeros(excess: Array, zeros: Array) -> None:
    """Make ``excess`` a mismatch, the smallest possible, where zeros differ in sign."""
    excess[zeros] = np.maximum(excess[zeros], _TINY)


class Furthest:
    """Keeps the flat offset of the largest excess offered so far, the first one if several are equal."""

    def __init__(self) -> None:
        self.excess: float = -np.inf
        self.offset: int | None = None

    def offer(self, excess: Array, offset: int) -> None:
        """Consider the elements from flat ``offset`` on; −inf means that an element is not a candidate."""
        position = int(np.argmax(excess))
        if excess[position] > self.excess:
            self.excess, self.offset = excess[position].item(), offset + position
