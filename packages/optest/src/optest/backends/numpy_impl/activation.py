"""Activations by formulas other than their definitions: tanh for sigmoid, erfc for Φ, max and min."""

from __future__ import annotations

import math

import numpy as np

from .common import Array, Implementation, erfc

_SCALE = 1.0507009873554805
_ALPHA = 1.6732632423543772


def _sigmoid(values: Array) -> Array:
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1, small) / (1 + small)


def _tanh(values: Array) -> Array:
    grown = np.expm1(2 * np.minimum(np.abs(values), 20))
    return np.copysign(grown / (grown + 2), values)


def _softplus(values: Array) -> Array:
    return np.maximum(values, 0) + np.log1p(np.exp(-np.abs(values)))


def _elu(values: Array, *, alpha: float) -> Array:
    return np.maximum(values, 0) + alpha * np.expm1(np.minimum(values, 0))


def _gelu(values: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        cube = values * values * values
        return values * _sigmoid(2 * math.sqrt(2 / math.pi) * (values + 0.044715 * cube))
    return values * (erfc(-values / math.sqrt(2)) / 2)


def _mish(values: Array) -> Array:
    """Use tanh(log(1 + e^x)) = (u² − 1) / (u² + 1) with u = 1 + e^x, if x is too small to overflow."""
    grown = np.exp(np.minimum(values, 20))
    ratio = (grown * (grown + 2)) / (grown * (grown + 2) + 2)
    return values * np.where(values > 20, 1, ratio)


def _softplus_limited(values: Array, *, beta: float, threshold: float) -> Array:
    linear = values * beta > threshold
    return np.where(linear, values, _softplus(values * beta) / beta)


def _clip(values: Array, low: float, high: float) -> Array:
    return np.minimum(np.maximum(values, low), high)


def _softshrink(values: Array, *, lambd: float) -> Array:
    return values - _clip(values, -lambd, lambd)


def _hardshrink(values: Array, *, lambd: float) -> Array:
    return values * ~(np.abs(values) <= lambd)


def _threshold(values: Array, *, threshold: float, value: float) -> Array:
    result = values.copy()
    result[values <= threshold] = value
    return result


def _leaky_relu(values: Array, *, negative_slope: float) -> Array:
    return np.maximum(values, 0) + negative_slope * np.minimum(values, 0)


def _prelu(values: Array, weight: Array) -> Array:
    result = values.copy()
    channels = np.moveaxis(result, 1, 0) if values.ndim > 1 else result.reshape(1, -1)
    for channel, slope in zip(channels, np.broadcast_to(weight, len(channels)), strict=True):
        channel[~(channel > 0)] *= slope
    return result


def _glu(values: Array, *, dim: int) -> Array:
    half = values.shape[dim] // 2
    first = np.take(values, np.arange(half), axis=dim)
    return first * _sigmoid(np.take(values, np.arange(half, 2 * half), axis=dim))


OPERATORS: dict[str, Implementation] = {
    "relu": lambda values: np.maximum(values, values.dtype.type(0)),
    "relu6": lambda values: _clip(values, 0, 6),
    "leaky_relu": _leaky_relu,
    "elu": _elu,
    "selu": lambda values: _SCALE * _elu(values, alpha=_ALPHA),
    "celu": lambda values, *, alpha: alpha * _elu(values / alpha, alpha=1.0),
    "gelu": _gelu,
    "silu": lambda values: values * _sigmoid(values),
    "mish": _mish,
    "sigmoid": lambda values: 0.5 + 0.5 * np.tanh(0.5 * values),
    "tanh": _tanh,
    "logsigmoid": lambda values: np.minimum(values, 0) - np.log1p(np.exp(-np.abs(values))),
    "softplus": _softplus_limited,
    "softsign": lambda values: values * (1 / (1 + np.abs(values))),
    "tanhshrink": lambda values: values - np.tanh(values),
    "hardtanh": lambda values, *, min_val, max_val: _clip(values, min_val, max_val),
    "hardsigmoid": lambda values: _clip(values / 6 + 0.5, 0, 1),
    "hardswish": lambda values: values * _clip(values / 6 + 0.5, 0, 1),
    "softshrink": _softshrink,
    "hardshrink": _hardshrink,
    "threshold": _threshold,
    "prelu": _prelu,
    "glu": _glu,
}
