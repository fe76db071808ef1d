"""Normalizations as one scale and one shift, and softmax as a quotient."""

from __future__ import annotations

import numpy as np

from .common import Array, Implementation, back, last


def _standard(lines: Array, eps: float) -> Array:
    """Subtract the mean of the last dimension and divide by its standard deviation."""
    centred = lines - lines.mean(axis=-1, keepdims=True)
    square = np.einsum("...i,...i->...", centred, centred) / lines.dtype.type(max(lines.shape[-1], 1))
    return centred * (1 / np.sqrt(square + lines.dtype.type(eps)))[..., None]


def _affine(values: Array, weight: Array, bias: Array) -> Array:
    """Multiply and add one number for each channel (dimension 1)."""
    return np.moveaxis(np.moveaxis(values, 1, -1) * weight + bias, -1, 1)


def _batch_norm(
    values: Array, mean: Array, variance: Array, weight: Array, bias: Array, *, training: bool, eps: float
) -> Array:
    if training:
        lines = np.moveaxis(values, 1, 0)
        normal = _standard(lines.reshape(lines.shape[0], -1), eps).reshape(lines.shape)
        return _affine(np.moveaxis(normal, 0, 1), weight, bias)
    scale = weight / np.sqrt(variance + values.dtype.type(eps))
    return _affine(values, scale, bias - mean * scale)


def _merged(values: Array, rank: int) -> Array:
    """Merge the last ``rank`` dimensions into one."""
    lead = values.shape[: values.ndim - rank]
    return values.reshape(*lead, int(np.prod(values.shape[values.ndim - rank :])))


def _layer_norm(
    values: Array, weight: Array, bias: Array, *, normalized_shape: tuple[int, ...], eps: float
) -> Array:
    lines = _merged(values, len(normalized_shape))
    return (_standard(lines, eps) * weight.ravel() + bias.ravel()).reshape(values.shape)


def _rms_norm(values: Array, weight: Array, *, normalized_shape: tuple[int, ...], eps: float) -> Array:
    lines = _merged(values, len(normalized_shape))
    size = np.linalg.norm(lines, axis=-1, keepdims=True)
    mean = size * size / lines.dtype.type(lines.shape[-1]) + lines.dtype.type(eps)
    return (lines * weight.ravel() / np.sqrt(mean)).reshape(values.shape)


def _group_norm(values: Array, weight: Array, bias: Array, *, num_groups: int, eps: float) -> Array:
    length = int(np.prod(values.shape[1:])) // num_groups
    lines = values.reshape(values.shape[0], num_groups, length)
    return _affine(_standard(lines, eps).reshape(values.shape), weight, bias)


def _instance_norm(values: Array, weight: Array, bias: Array, *, eps: float) -> Array:
    return _group_norm(values, weight, bias, num_groups=values.shape[1], eps=eps)


def _normalize(values: Array, *, p: float, dim: int, eps: float) -> Array:
    lines = last(values, dim)
    norm = np.linalg.norm(lines, p, axis=-1, keepdims=True)
    return back(lines / np.maximum(norm, values.dtype.type(eps)), dim, values)


def _local_response_norm(values: Array, *, size: int, alpha: float, beta: float, k: float) -> Array:
    """Normalize over neighboring channels, adding their squares for one distance after another."""
    channels = values.shape[1]
    squares = np.zeros_like(values)
    for distance in range(-(size // 2), size - size // 2):
        inside = slice(max(-distance, 0), max(channels - max(distance, 0), 0))
        beside = slice(max(distance, 0), max(channels - max(-distance, 0), 0))
        squares[:, inside] += np.square(values[:, beside])
    return values * (k + squares * (alpha / size)) ** -beta


def _softmax(values: Array, *, dim: int) -> Array:
    lines = last(values, dim)
    if lines.shape[-1] == 0:
        return values
    grown = np.exp(lines - np.maximum.reduce(lines, axis=-1, keepdims=True))
    return back(grown / np.add.reduce(grown, axis=-1, keepdims=True), dim, values)


def _log_softmax(values: Array, *, dim: int) -> Array:
    lines = last(values, dim)
    if lines.shape[-1] == 0:
        return values
    centred = lines - np.maximum.reduce(lines, axis=-1, keepdims=True)
    return back(centred - np.logaddexp.reduce(centred, axis=-1, keepdims=True), dim, values)


OPERATORS: dict[str, Implementation] = {
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "normalize": _normalize,
    "local_response_norm": _local_response_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "softmin": lambda values, *, dim: _softmax(-values, dim=dim),
}
