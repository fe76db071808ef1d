"""Elementwise functions of one tensor, in its own dtype."""

from __future__ import annotations

import math

import numpy as np
from ml_dtypes import finfo

from .common import Array, Implementation, by_element, erf, erfc


def _round(values: Array, *, decimals: int) -> Array:
    return np.round(values, decimals)


def _nan_to_num(values: Array, *, nan: float | None, posinf: float | None, neginf: float | None) -> Array:
    result, limit = values.copy(), finfo(values.dtype)
    result[np.isnan(values)] = nan or 0.0
    result[values == np.inf] = limit.max if posinf is None else posinf
    result[values == -np.inf] = limit.min if neginf is None else neginf
    return result


def _cast(values: Array, *, dtype: str) -> Array:
    if values.dtype.kind == "c" and not dtype.startswith("complex"):
        values = values.real
    return values.astype(bool) if dtype == "bool" else values


def _frac(values: Array) -> Array:
    whole = np.where(values < 0, np.ceil(values), np.floor(values))
    return values - whole


def _log_gamma(value: float) -> float:
    if value <= 0 and value % 1 == 0:
        return math.inf
    try:
        return math.lgamma(value)
    except OverflowError:
        return math.inf


def _digamma(value: float) -> float:
    """Use the recurrence until the argument is at least 12, and then the asymptotic series."""
    if value == 0:
        return math.copysign(math.inf, -value)
    if math.isinf(value) or math.isnan(value):
        return value if value > 0 else math.nan
    if value < 0:
        if value == math.floor(value):
            return math.nan
        return _digamma(1 - value) - math.pi / math.tan(math.pi * value)
    total = 0.0
    while value < 12:
        total -= 1 / value
        value += 1
    square = 1 / (value * value)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252 - square * (1 / 240 - square / 132))))
    return total + math.log(value) - 0.5 / value - series


OPERATORS: dict[str, Implementation] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda values: (
        (values > 0).astype(values.dtype) - (values < 0).astype(np.int8).astype(values.dtype)
    ),
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "frac": _frac,
    "round": _round,
    "square": lambda values: values * values,
    "reciprocal": lambda values: values.dtype.type(1) / values,
    "sqrt": np.sqrt,
    "rsqrt": lambda values: np.reciprocal(np.sqrt(values)),
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.asin,
    "acos": np.acos,
    "atan": np.atan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.asinh,
    "acosh": np.acosh,
    "atanh": np.atanh,
    "erf": erf,
    "erfc": erfc,
    "lgamma": by_element(_log_gamma),
    "digamma": by_element(_digamma),
    "logical_not": lambda values: values == 0,
    "bitwise_not": lambda values: values ^ np.array(-1).astype(values.dtype),
    "nan_to_num": _nan_to_num,
    "cast": _cast,
}
