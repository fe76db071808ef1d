"""References of losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .wide import PI, Array, Reference, reference


def _reduced(losses: Array, reduction: str) -> Array:
    if reduction == "none":
        return losses
    total = losses.sum()
    return total if reduction == "sum" else total / losses.dtype.type(losses.size)


def _loss(function: Callable[..., Array]) -> Reference:
    def compute(prediction: Array, target: Array, *, reduction: str, **attributes: Any) -> Array:
        return _reduced(function(prediction, target, **attributes), reduction)

    return reference(compute)


def _smooth(distance: Array, beta: float) -> Array:
    return np.where(distance < beta, 0.5 * distance**2 / beta, distance - 0.5 * beta)


def _huber(distance: Array, delta: float) -> Array:
    return np.where(distance <= delta, 0.5 * distance**2, delta * (distance - 0.5 * delta))


def _cross_entropy(input: Array, target: Array) -> Array:
    bounded = (np.maximum(np.log(one), -100) for one in (input, 1 - input))
    positive, negative = bounded
    return -(target * positive + (1 - target) * negative)


def _poisson(input: Array, target: Array, *, log_input: bool, full: bool, eps: float) -> Array:
    losses = np.exp(input) - target * input if log_input else input - target * np.log(input + eps)
    if full:
        stirling = target * np.log(target) - target + 0.5 * np.log(2 * PI.astype(target.dtype) * target)
        losses = losses + np.where(target > 1, stirling, 0)
    return losses


def _divergence(input: Array, target: Array, *, log_target: bool) -> Array:
    if log_target:
        return np.exp(target) * (target - input)
    return np.where(target > 0, target * np.log(target), 0) - target * input


mse_loss_reference = _loss(lambda input, target: (input - target) ** 2)
l1_loss_reference = _loss(lambda input, target: np.abs(input - target))
smooth_l1_loss_reference = _loss(lambda input, target, beta: _smooth(np.abs(input - target), beta))
huber_loss_reference = _loss(lambda input, target, delta: _huber(np.abs(input - target), delta))
binary_cross_entropy_reference = _loss(_cross_entropy)
binary_cross_entropy_with_logits_reference = _loss(
    lambda input, target: np.logaddexp(0, input) - target * input
)
soft_margin_loss_reference = _loss(lambda input, target: np.logaddexp(0, -target * input))
hinge_embedding_loss_reference = _loss(
    lambda input, target, margin: np.where(target == 1, input, np.maximum(0, margin - input))
)
poisson_nll_loss_reference = _loss(_poisson)
kl_div_reference = _loss(_divergence)


def _by_class(logs: Array, target: Array, ignore_index: int, reduction: str, smoothing: float = 0.0) -> Array:
    """Return the loss of targets from log-probabilities [batch, classes, ...].

    Targets equal to ``ignore_index`` have the loss 0 and do not count in the mean.
    """
    lines = np.moveaxis(logs, 1, -1)
    counts = target != ignore_index
    places = np.where(counts, target, 0)
    chosen = np.take_along_axis(lines, places[..., None], axis=-1)[..., 0]
    losses = -(1 - smoothing) * chosen - smoothing * lines.mean(axis=-1)
    losses = np.where(counts, losses, 0)
    if reduction == "mean":
        return losses.sum() / losses.dtype.type(counts.sum())
    return _reduced(losses, reduction)


def _batched(scores: Array, target: Array) -> tuple[Array, Array, bool]:
    single = scores.ndim == 1
    return (scores[None], target[None], True) if single else (scores, target, False)


@reference
def nll_loss_reference(scores: Array, target: Array, *, ignore_index: int, reduction: str) -> Array:
    scores, target, single = _batched(scores, target)
    found = _by_class(scores, target, ignore_index, reduction)
    return found.reshape(()) if single else found


@reference
def cross_entropy_reference(
    scores: Array, target: Array, *, ignore_index: int, reduction: str, label_smoothing: float
) -> Array:
    scores, target, single = _batched(scores, target)
    centred = scores - scores.max(axis=1, keepdims=True)
    logs = centred - np.log(np.exp(centred).sum(axis=1, keepdims=True))
    found = _by_class(logs, target, ignore_index, reduction, label_smoothing)
    return found.reshape(()) if single else found


@reference
def cosine_similarity_reference(left: Array, right: Array, *, dim: int, eps: float) -> Array:
    left, right = np.broadcast_arrays(left, right)
    sizes = (np.maximum(np.sqrt((one**2).sum(axis=dim)), eps) for one in (left, right))
    return (left * right).sum(axis=dim) / np.prod(list(sizes), axis=0)
