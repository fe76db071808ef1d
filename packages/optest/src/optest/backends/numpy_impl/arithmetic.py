"""Elementwise functions of two and three tensors, in their own dtype, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .common import Array, Implementation


def _scaled(right: Array, alpha: float) -> Array:
    return right * np.asarray(alpha).astype(right.dtype)


def _trunc_div(left: Array, right: Array) -> Array:
    if left.dtype.kind == "f":
        return np.trunc(left / right)
    quotient, rest = np.divmod(left, right)
    return quotient + ((rest != 0) & ((left < 0) != (right < 0)))


def _floor_div(left: Array, right: Array) -> Array:
    if left.dtype.kind != "f":
        return left // right
    return np.rint((left - _remainder(left, right)) / right)


def _rounded_div(left: Array, right: Array, *, rounding_mode: str) -> Array:
    return _trunc_div(left, right) if rounding_mode == "trunc" else _floor_div(left, right)


def _remainder(left: Array, right: Array) -> Array:
    rest = np.fmod(left, right)
    return np.where((rest != 0) & ((rest < 0) != (right < 0)), rest + right, rest)


def _fmod(left: Array, right: Array) -> Array:
    """Compute C's fmod for each pair of floats, or the rest of truncating division for integers."""
    if left.dtype.kind == "f":
        return np.asarray(_C_FMOD(left.astype(float), right.astype(float)), dtype=left.dtype)
    return left - right * _trunc_div(left, right)


def _fmod_of_two(left: float, right: float) -> float:
    """Return what C's fmod returns; Python's raises where C's returns NaN."""
    return math.nan if math.isinf(left) or right == 0 else math.fmod(left, right)


_C_FMOD = np.frompyfunc(_fmod_of_two, 2, 1)


def _pow(base: Array, exponent: Array) -> Array:
    if base.dtype.kind == "f":
        return np.float_power(base, exponent) if base.dtype == np.float64 else np.power(base, exponent)
    base, exponent = np.broadcast_arrays(base, exponent)
    result = np.ones_like(base)
    for _ in range(int(exponent.max(initial=0))):
        result = np.where(exponent > 0, result * base, result)
        exponent = np.where(exponent > 0, exponent - 1, exponent)
    odd = exponent % 2 != 0
    inverse = np.where(np.abs(base) == 1, np.where(odd, base, np.ones_like(base)), np.zeros_like(base))
    return np.where(exponent < 0, inverse, result)


def _choose(prefer: Callable[[Array, Array], Array], *, skip_nan: bool) -> Implementation:
    """Return a choice between two elements by ``prefer``; NaN always wins, or loses if ``skip_nan``."""

    def choose(left: Array, right: Array) -> Array:
        if left.dtype.kind != "f":
            return np.where(prefer(left, right), left, right)
        nan = np.isnan(right) if skip_nan else np.isnan(left)
        other = np.isnan(left) if skip_nan else np.isnan(right)
        return np.where(nan | (prefer(left, right) & ~other), left, right)

    return choose


def _logaddexp(left: Array, right: Array) -> Array:
    high, low = np.maximum(left, right), np.minimum(left, right)
    return np.where(np.isinf(high), high, high + np.log1p(np.exp(low - high)))


def _hypot(left: Array, right: Array) -> Array:
    """Compute the hypotenuse, divided by the larger side so that squares do not overflow."""
    high, low = np.fmax(np.abs(left), np.abs(right)), np.fmin(np.abs(left), np.abs(right))
    ratio = low / np.where(high == 0, high.dtype.type(1), high)
    infinite = np.isinf(left) | np.isinf(right)
    found = np.where(infinite, high.dtype.type(np.inf), high * np.sqrt(1 + ratio * ratio))
    return np.where(~infinite & (np.isnan(left) | np.isnan(right)), high.dtype.type(np.nan), found)


def _copysign(left: Array, right: Array) -> Array:
    size = np.abs(left)
    return np.where(np.signbit(right), -size, size)


def _gcd(left: Array, right: Array) -> Array:
    left, right = (np.abs(one) for one in np.broadcast_arrays(left, right))
    while right.any():
        rest = np.where(right == 0, 0, left % np.where(right == 0, 1, right)).astype(left.dtype)
        left, right = np.where(right == 0, left, right), rest
    return left


def _left_shift(values: Array, distance: Array) -> Array:
    width = 8 * values.dtype.itemsize
    factors = values.dtype.type(1) << np.minimum(distance, width - 1)
    return np.where(distance < width, values * factors, 0)


def _right_shift(values: Array, distance: Array) -> Array:
    width = 8 * values.dtype.itemsize
    gone = np.where(values < 0, -1, 0).astype(values.dtype)
    return np.where(distance < width, values >> np.minimum(distance, width - 1), gone)


def _where(condition: Array, values: Array, other: Array) -> Array:
    condition, values, other = np.broadcast_arrays(condition, values, other)
    result = other.copy()
    result[condition] = values[condition]
    return result


def _clamp(values: Array, *, min: float | None, max: float | None) -> Array:
    if min is not None:
        values = np.maximum(values, values.dtype.type(min))
    return values if max is None else np.minimum(values, values.dtype.type(max))


def _lerp(start: Array, end: Array, weight: Array) -> Array:
    return start * (1 - weight) + end * weight


def _isclose(left: Array, right: Array, *, rtol: float, atol: float, equal_nan: bool) -> Array:
    return np.isclose(left, right, rtol=rtol, atol=atol, equal_nan=equal_nan)


def _truth(values: Array) -> Array:
    return values.astype(bool)


OPERATORS: dict[str, Implementation] = {
    "add": lambda left, right, *, alpha: left + _scaled(right, alpha),
    "sub": lambda left, right, *, alpha: left - _scaled(right, alpha),
    "mul": lambda left, right: left * right,
    "div": lambda left, right: left / right,
    "rounded_divide": _rounded_div,
    "floor_divide": _floor_div,
    "remainder": _remainder,
    "fmod": _fmod,
    "pow": _pow,
    "maximum": _choose(np.greater_equal, skip_nan=False),
    "minimum": _choose(np.less_equal, skip_nan=False),
    "fmax": _choose(np.greater_equal, skip_nan=True),
    "fmin": _choose(np.less_equal, skip_nan=True),
    "atan2": np.atan2,
    "hypot": _hypot,
    "logaddexp": _logaddexp,
    "copysign": _copysign,
    "gcd": _gcd,
    "logical_and": lambda left, right: _truth(left) & _truth(right),
    "logical_or": lambda left, right: _truth(left) | _truth(right),
    "logical_xor": lambda left, right: _truth(left) != _truth(right),
    "bitwise_and": lambda left, right: left & right,
    "bitwise_or": lambda left, right: left | right,
    "bitwise_xor": lambda left, right: left ^ right,
    "bitwise_left_shift": _left_shift,
    "bitwise_right_shift": _right_shift,
    "where": _where,
    "clamp": _clamp,
    "lerp": _lerp,
    "addcmul": lambda values, left, right, *, value: values + _scaled(left * right, value),
    "addcdiv": lambda values, left, right, *, value: values + _scaled(left / right, value),
    "eq": lambda left, right: ~(left != right),
    "ne": lambda left, right: ~(left == right),
    "lt": lambda left, right: right > left,
    "le": lambda left, right: right >= left,
    "gt": lambda left, right: right < left,
    "ge": lambda left, right: right <= left,
    "isnan": lambda values: values != values,
    "isinf": lambda values: np.abs(values) == math.inf,
    "isfinite": lambda values: np.abs(values) < math.inf,
    "signbit": lambda values: np.copysign(1, values) < 0 if values.dtype.kind == "f" else values < 0,
    "isclose": _isclose,
}
