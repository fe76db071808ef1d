"""References of normalizations and of softmax: two passes, mean first."""

from __future__ import annotations

import numpy as np

from .wide import Array, lined_up, put_back, reference


def _standardized(values: Array, axes: tuple[int, ...], eps: float) -> Array:
    mean = values.mean(axis=axes, keepdims=True)
    variance = ((values - mean) ** 2).mean(axis=axes, keepdims=True)
    return (values - mean) / np.sqrt(variance + eps)


def _per_channel(vector: Array, values: Array) -> Array:
    """Return ``vector`` reshaped to broadcast along dimension 1 of ``values``."""
    return vector.reshape(-1, *(1,) * (values.ndim - 2))


def _trailing(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


@reference
def batch_norm_reference(
    values: Array, mean: Array, variance: Array, weight: Array, bias: Array, *, training: bool, eps: float
) -> Array:
    if training:
        normal = _standardized(values, (0, *range(2, values.ndim)), eps)
    else:
        normal = (values - _per_channel(mean, values)) / np.sqrt(_per_channel(variance, values) + eps)
    return normal * _per_channel(weight, values) + _per_channel(bias, values)


@reference
def layer_norm_reference(
    values: Array, weight: Array, bias: Array, *, normalized_shape: tuple[int, ...], eps: float
) -> Array:
    return _standardized(values, _trailing(normalized_shape), eps) * weight + bias


@reference
def rms_norm_reference(
    values: Array, weight: Array, *, normalized_shape: tuple[int, ...], eps: float
) -> Array:
    square = (values**2).mean(axis=_trailing(normalized_shape), keepdims=True)
    return values / np.sqrt(square + eps) * weight


@reference
def group_norm_reference(values: Array, weight: Array, bias: Array, *, num_groups: int, eps: float) -> Array:
    channels = values.shape[1]
    grouped = values.reshape(values.shape[0], num_groups, channels // num_groups, *values.shape[2:])
    normal = _standardized(grouped, tuple(range(2, grouped.ndim)), eps).reshape(values.shape)
    return normal * _per_channel(weight, values) + _per_channel(bias, values)


@reference
def instance_norm_reference(values: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    normal = _standardized(values, tuple(range(2, values.ndim)), eps)
    return normal * _per_channel(weight, values) + _per_channel(bias, values)


@reference
def normalize_reference(values: Array, *, p: float, dim: int, eps: float) -> Array:
    power = values.dtype.type(p)
    norm = (np.abs(values) ** power).sum(axis=dim, keepdims=True) ** (1 / power)
    return values / np.maximum(norm, eps)


@reference
def local_response_norm_reference(values: Array, *, size: int, alpha: float, beta: float, k: float) -> Array:
    squares = np.zeros_like(values)
    channels = values.shape[1]
    for channel in range(channels):
        first = channel - size // 2
        window = values[:, max(first, 0) : min(first + size, channels)]
        squares[:, channel] = (window**2).sum(axis=1)
    return values / (k + alpha * squares / size) ** values.dtype.type(beta)


def _log_softmax(values: Array, dim: int) -> Array:
    lines = lined_up(values, dim)
    if lines.shape[-1] == 0:
        return values
    centred = lines - lines.max(axis=-1, keepdims=True)
    return put_back(centred - np.log(np.exp(centred).sum(axis=-1, keepdims=True)), dim, values)


@reference
def log_softmax_reference(values: Array, *, dim: int) -> Array:
    return _log_softmax(values, dim)


@reference
def softmax_reference(values: Array, *, dim: int) -> Array:
    return np.exp(_log_softmax(values, dim))


@reference
def softmin_reference(values: Array, *, dim: int) -> Array:
    return np.exp(_log_softmax(-values, dim))
