"""References of the elementwise functions of two and three tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .wide import Array, by_numpy, is_float, reference

mul_reference = by_numpy(np.multiply)
div_reference = by_numpy(np.true_divide)
floor_divide_reference = by_numpy(np.floor_divide)
remainder_reference = by_numpy(np.remainder)
fmod_reference = by_numpy(np.fmod)
gcd_reference = by_numpy(np.gcd)


@reference
def add_reference(left: Array, right: Array, *, alpha: float) -> Array:
    return left + alpha * right


@reference
def sub_reference(left: Array, right: Array, *, alpha: float) -> Array:
    return left - alpha * right


@reference
def rounded_divide_reference(left: Array, right: Array, *, rounding_mode: str) -> Array:
    if rounding_mode == "floor":
        return np.floor_divide(left, right)
    if is_float(left):
        return np.trunc(left / right)
    size = np.abs(left) // np.abs(right)
    return np.where((left < 0) != (right < 0), -size, size)


@reference
def pow_reference(base: Array, exponent: Array) -> Array:
    if is_float(base):
        return np.power(base, exponent)
    base, exponent = np.broadcast_arrays(base, exponent)
    inverse = np.where(base == 1, 1, np.where(base == -1, 1 - 2 * (exponent % 2), 0))
    return np.where(exponent < 0, inverse, np.power(base, np.maximum(exponent, 0)))


logical_and_reference = by_numpy(np.logical_and)
logical_or_reference = by_numpy(np.logical_or)
logical_xor_reference = by_numpy(np.logical_xor)
bitwise_and_reference = by_numpy(np.bitwise_and)
bitwise_or_reference = by_numpy(np.bitwise_or)
bitwise_xor_reference = by_numpy(np.bitwise_xor)


@reference
def bitwise_left_shift_reference(values: Array, distance: Array) -> Array:
    """Shift in int64; narrowing the result later drops the bits beyond the width."""
    return np.where(distance < 64, np.left_shift(values, np.minimum(distance, 63)), 0)


@reference
def bitwise_right_shift_reference(values: Array, distance: Array) -> Array:
    return np.right_shift(values, np.minimum(distance, 63))


maximum_reference = by_numpy(np.maximum)
minimum_reference = by_numpy(np.minimum)
fmax_reference = by_numpy(np.fmax)
fmin_reference = by_numpy(np.fmin)


@reference
def where_reference(condition: Array, values: Array, other: Array) -> Array:
    return np.where(condition, values, other)


@reference
def clamp_reference(values: Array, *, min: float | None, max: float | None) -> Array:
    if min is not None:
        values = np.where(values < min, min, values)
    return values if max is None else np.where(values > max, max, values)


atan2_reference = by_numpy(np.arctan2)
hypot_reference = by_numpy(np.hypot)
logaddexp_reference = by_numpy(np.logaddexp)
copysign_reference = by_numpy(np.copysign)


@reference
def lerp_reference(start: Array, end: Array, weight: Array) -> Array:
    return start + weight * (end - start)


@reference
def addcmul_reference(values: Array, left: Array, right: Array, *, value: float) -> Array:
    return values + value * left * right


@reference
def addcdiv_reference(values: Array, left: Array, right: Array, *, value: Any) -> Array:
    return values + value * left / right
