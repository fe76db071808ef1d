"""Facts about the dtypes of NumPy and ml_dtypes that the comparator needs: kinds and float formats.

An operator's descriptor says which dtypes it takes. The dtype objects of other frameworks are not used here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import ml_dtypes
import numpy as np

Kind = Literal["bool", "int", "float", "complex"]


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """A binary floating format, from ``ml_dtypes.finfo``.

    ``bits`` may be fewer than are stored (float4 and float6 take one byte). ``signed`` is False only for
    float8_e8m0fnu. ``ulp_exponents`` are the binary exponents of the smallest and the largest distance
    between neighboring finite values.
    """

    bits: int
    mantissa_bits: int
    signed: bool
    ulp_exponents: tuple[int, int]
    eps: float
    smallest_subnormal: float


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return ``dtype`` in this machine's byte order."""
    return dtype.newbyteorder("=")


@cache
def kind_of(dtype: np.dtype[Any]) -> Kind:
    """Return the kind of number that ``dtype`` holds.

    Raises ``TypeError`` for dtypes without an exact wider type here: object, string, date and structured
    types, ``longdouble`` and ``clongdouble``.
    """
    if dtype.kind == "b":
        return "bool"
    if dtype.kind in "iu" or _is_small_integer(dtype):
        return "int"
    if dtype.kind == "c" and dtype.itemsize <= 16:
        return "complex"
    if (dtype.kind == "f" and dtype.itemsize <= 8) or _is_small_float(dtype):
        return "float"
    raise TypeError(
        f"cannot compare elements of dtype {dtype}: use a bool, integer, floating or complex dtype of at "
        "most 64 bits a part (a longdouble array serves as `reference`; round `actual` and `expected`)"
    )


def real_part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of one part of a complex dtype; any other dtype is returned unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


@cache
def float_format(dtype: np.dtype[Any]) -> FloatFormat:
    """Return the format of a floating-point dtype, or of one part of a complex dtype."""
    info = ml_dtypes.finfo(native(real_part(dtype)))
    subnormal = float(info.smallest_subnormal)
    mantissa_bits = int(info.nmant)
    # frexp's exponent counts from 0.5, so one less is the power of two itself.
    smallest = int(np.frexp(subnormal)[1]) - 1
    largest = int(np.frexp(float(info.max))[1]) - 1 - mantissa_bits
    return FloatFormat(
        bits=int(info.bits),
        mantissa_bits=mantissa_bits,
        signed=float(info.min) < 0,
        ulp_exponents=(smallest, largest),
        eps=float(info.eps),
        smallest_subnormal=subnormal,
    )


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Whether ``dtype`` is a floating-point or complex dtype with parts of at most 16 bits."""
    return kind_of(dtype) in ("float", "complex") and float_format(dtype).bits <= 16


def _is_small_integer(dtype: np.dtype[Any]) -> bool:
    try:
        ml_dtypes.iinfo(dtype)
    except (TypeError, ValueError):
        return False
    return True


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    if dtype.kind != "V" or dtype.fields is not None:
        return False
    try:
        ml_dtypes.finfo(dtype)
    except (TypeError, ValueError):
        return False
    return True
