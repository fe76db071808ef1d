"""Losses by other formulas: integrated clipped gradients, label distributions and log-sigmoids."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .common import Array, Implementation


def _reduced(losses: Array, reduction: str) -> Array:
    if reduction == "mean":
        return np.add.reduce(losses.ravel()) / losses.dtype.type(losses.size)
    return np.einsum("i->", losses.ravel()) if reduction == "sum" else losses


def _loss(function: Callable[..., Array]) -> Implementation:
    def compute(prediction: Array, target: Array, *, reduction: str, **attributes: Any) -> Array:
        return _reduced(function(prediction, target, **attributes), reduction)

    return compute


def _clipped(difference: Array, limit: float) -> Array:
    """Compute clip(d) · (d − clip(d) / 2), which is quadratic within ±limit and linear outside."""
    clipped = np.clip(difference, -limit, limit)
    return clipped * (difference - clipped / 2)


def _log_sigmoid(values: Array) -> Array:
    return np.minimum(values, 0) - np.log1p(np.exp(-np.abs(values)))


def _binary(prediction: Array, target: Array) -> Array:
    logarithm = np.maximum(np.log(prediction), -100)
    other = np.maximum(np.log1p(-prediction), -100)
    return (target - 1) * other - target * logarithm


def _hinge(prediction: Array, target: Array, *, margin: float) -> Array:
    losses = prediction.copy()
    wrong = target == -1
    losses[wrong] = np.clip(margin - prediction[wrong], 0, None)
    return losses


def _poisson(prediction: Array, target: Array, *, log_input: bool, full: bool, eps: float) -> Array:
    logarithm = prediction if log_input else np.log(prediction + prediction.dtype.type(eps))
    losses = (np.exp(prediction) if log_input else prediction) - target * logarithm
    if full:
        safe = np.maximum(target, 1)
        stirling = safe * (np.log(safe) - 1) + np.log(safe * (2 * math.pi)) / 2
        losses = losses + stirling * (target > 1)
    return losses


def _divergence(prediction: Array, target: Array, *, log_target: bool) -> Array:
    if log_target:
        return np.exp(target) * target - np.exp(target) * prediction
    return target * (np.log(np.where(target > 0, target, 1)) - prediction)


def _weighted(logs: Array, target: Array, ignore_index: int, reduction: str, smoothing: float = 0.0) -> Array:
    """Multiply the wanted distribution over the classes (the last dimension of ``logs``) by −``logs``."""
    classes = logs.shape[-1]
    hot = (target[..., None] == np.arange(classes)).astype(logs.dtype)
    wanted = hot * (1 - smoothing) + logs.dtype.type(smoothing / classes)
    counts = (target != ignore_index).astype(logs.dtype)
    losses = -np.einsum("...c,...c,...->...", wanted, logs, counts)
    return losses.sum() / counts.sum() if reduction == "mean" else _reduced(losses, reduction)


def _classes_last(scores: Array) -> Array:
    return np.moveaxis(scores, 1, -1) if scores.ndim > 1 else scores


def _nll(scores: Array, target: Array, *, ignore_index: int, reduction: str) -> Array:
    return _weighted(_classes_last(scores), target, ignore_index, reduction)


def _cross_entropy(
    scores: Array, target: Array, *, ignore_index: int, reduction: str, label_smoothing: float
) -> Array:
    lines = _classes_last(scores)
    centred = lines - lines.max(axis=-1, keepdims=True)
    logs = centred - np.logaddexp.reduce(centred, axis=-1, keepdims=True)
    return _weighted(logs, target, ignore_index, reduction, label_smoothing)


def _cosine(left: Array, right: Array, *, dim: int, eps: float) -> Array:
    rank = max(left.ndim, right.ndim)
    lines = [np.moveaxis(one.reshape((1,) * (rank - one.ndim) + one.shape), dim, -1) for one in (left, right)]
    unit = [
        one / np.maximum(np.linalg.norm(one, axis=-1, keepdims=True), one.dtype.type(eps)) for one in lines
    ]
    return np.einsum("...i,...i->...", *unit)


OPERATORS: dict[str, Implementation] = {
    "mse_loss": _loss(lambda prediction, target: np.square(target - prediction)),
    "l1_loss": _loss(lambda prediction, target: np.maximum(prediction - target, target - prediction)),
    "smooth_l1_loss": _loss(lambda prediction, target, beta: _clipped(prediction - target, beta) / beta),
    "huber_loss": _loss(lambda prediction, target, delta: _clipped(prediction - target, delta)),
    "binary_cross_entropy": _loss(_binary),
    "binary_cross_entropy_with_logits": _loss(
        lambda prediction, target: (
            (target - 1) * _log_sigmoid(-prediction) - target * _log_sigmoid(prediction)
        )
    ),
    "soft_margin_loss": _loss(lambda prediction, target: -_log_sigmoid(target * prediction)),
    "hinge_embedding_loss": _loss(_hinge),
    "poisson_nll_loss": _loss(_poisson),
    "kl_div": _loss(_divergence),
    "nll_loss": _nll,
    "cross_entropy": _cross_entropy,
    "cosine_similarity": _cosine,
}
