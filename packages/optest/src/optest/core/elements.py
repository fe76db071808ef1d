"""Element-wise pieces of the comparator: walking arrays, errors, signs, the worst one.

Each function takes plain arrays of one shape; ``compare`` silences the floating-point
warnings for all of them. No verdict is reached here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import native
from .tolerance import Tolerance

_BLOCK = 1 << 15  # elements at a time: temporaries stay in cache and small beside the arrays
_TINY = 5e-324  # marks a mismatch that no other measure shows: the sign of a zero

Array = NDArray[Any]


def blocks(*arrays: Array) -> Iterator[tuple[int, tuple[Array, ...]]]:
    """Walk equally shaped arrays in C order: flat offset and one 1-D native piece of each.

    Pieces are valid until the next step. Contiguous native arrays are not copied.
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
    """|got − want| and how far that is beyond the limit (> 0 exactly for a mismatch).

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
    """Where values are equal, or both NaN if the tolerance lets NaNs agree."""
    equal: Array = np.asarray(left == right)
    return equal | (np.isnan(left) & np.isnan(right)) if tolerance.equal_nan else equal


def sign_differences(got: Array, want: Array) -> tuple[Array, Array]:
    """Where nonzero values, and where zeros, differ in sign (complex: in either part)."""
    signs = zeros = np.zeros(got.shape, dtype=bool)
    pairs = ((got.real, want.real), (got.imag, want.imag)) if got.dtype.kind == "c" else ((got, want),)
    for left, right in pairs:
        differ = np.signbit(left) != np.signbit(right)
        if differ.any():
            signs = signs | differ & (np.abs(left) > 0) & (np.abs(right) > 0)  # NaN is not above 0
            zeros = zeros | differ & (left == 0) & (right == 0)
    return signs, zeros


def widened(values: Array) -> Array:
    """Floats as float64, complex numbers as complex128: exact for all that is compared."""
    return values.astype(wide_dtype(values.dtype), copy=False)


def wide_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What :func:`widened` turns a floating or complex ``dtype`` into."""
    return np.dtype(np.complex128 if dtype.kind == "c" else np.float64)


def insist_on_zeros(excess: Array, zeros: Array) -> None:
    """Make ``excess`` a mismatch, though the slightest one, where zeros differ in sign."""
    excess[zeros] = np.maximum(excess[zeros], _TINY)


class Furthest:
    """The flat offset of the largest excess offered so far; the first of equal ones."""

    def __init__(self) -> None:
        self.excess: float = -np.inf
        self.offset: int | None = None

    def offer(self, excess: Array, offset: int) -> None:
        """Consider the elements from flat ``offset`` on; −inf stands for no candidate."""
        position = int(np.argmax(excess))
        if excess[position] > self.excess:
            self.excess, self.offset = excess[position].item(), offset + position
