"""References of activations, written as their definitions."""

from __future__ import annotations

import numpy as np
from scipy import special

from .wide import PI, Array, reference

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def _softplus(values: Array) -> Array:
    return np.logaddexp(0, values).astype(values.dtype)


def _negative_part(values: Array, replacement: Array) -> Array:
    """Return ``values`` where they are above 0 or NaN, and ``replacement`` elsewhere."""
    return np.where(values <= 0, replacement, values)


@reference
def relu_reference(values: Array) -> Array:
    return _negative_part(values, np.zeros_like(values))


@reference
def relu6_reference(values: Array) -> Array:
    return np.clip(values, 0, 6)


@reference
def leaky_relu_reference(values: Array, *, negative_slope: float) -> Array:
    return _negative_part(values, values * negative_slope)


@reference
def elu_reference(values: Array, *, alpha: float) -> Array:
    return _negative_part(values, alpha * np.expm1(values))


@reference
def selu_reference(values: Array) -> Array:
    return _SELU_SCALE * _negative_part(values, _SELU_ALPHA * np.expm1(values))


@reference
def celu_reference(values: Array, *, alpha: float) -> Array:
    return _negative_part(values, alpha * np.expm1(values / alpha))


@reference
def gelu_reference(values: Array, *, approximate: str) -> Array:
    if approximate == "tanh":
        inner = np.sqrt(2 / PI.astype(values.dtype)) * (values + 0.044715 * values**3)
        return 0.5 * values * (1 + np.tanh(inner))
    return values * special.ndtr(values.astype(np.float64))


@reference
def silu_reference(values: Array) -> Array:
    return values * _sigmoid(values)


@reference
def mish_reference(values: Array) -> Array:
    return values * np.tanh(_softplus(values))


@reference
def sigmoid_reference(values: Array) -> Array:
    return _sigmoid(values)


@reference
def tanh_reference(values: Array) -> Array:
    return np.tanh(values)


@reference
def logsigmoid_reference(values: Array) -> Array:
    return -_softplus(-values)


@reference
def softplus_reference(values: Array, *, beta: float, threshold: float) -> Array:
    scaled = values * beta
    return np.where(scaled > threshold, values, _softplus(scaled) / beta)


@reference
def softsign_reference(values: Array) -> Array:
    return values / (1 + np.abs(values))


@reference
def tanhshrink_reference(values: Array) -> Array:
    return values - np.tanh(values)


@reference
def hardtanh_reference(values: Array, *, min_val: float, max_val: float) -> Array:
    return np.clip(values, min_val, max_val)


@reference
def hardsigmoid_reference(values: Array) -> Array:
    return np.clip(values + 3, 0, 6) / 6


@reference
def hardswish_reference(values: Array) -> Array:
    return values * np.clip(values + 3, 0, 6) / 6


@reference
def softshrink_reference(values: Array, *, lambd: float) -> Array:
    return np.where(values > lambd, values - lambd, np.where(values < -lambd, values + lambd, values * 0))


@reference
def hardshrink_reference(values: Array, *, lambd: float) -> Array:
    return np.where((values >= -lambd) & (values <= lambd), 0, values)


@reference
def threshold_reference(values: Array, *, threshold: float, value: float) -> Array:
    return np.where(values <= threshold, value, values)


@reference
def prelu_reference(values: Array, weight: Array) -> Array:
    if values.ndim > 1:
        weight = weight.reshape(-1, *(1,) * (values.ndim - 2))
    return np.where(values > 0, values, values * weight.reshape(weight.shape if values.ndim else ()))


@reference
def glu_reference(values: Array, *, dim: int) -> Array:
    first, second = np.split(values, 2, axis=dim)
    return first * _sigmoid(second)
