"""References of attention: the formula of the documentation, one matrix at a time."""

from __future__ import annotations

import numpy as np

from .wide import Array, reference


def _attention(
    query: Array, key: Array, value: Array, scale: float | None, hidden: Array, added: Array
) -> Array:
    """Compute attention; ``hidden`` marks scores to ignore, ``added`` is added to the scores."""
    factor = 1 / np.sqrt(query.dtype.type(query.shape[-1])) if scale is None else scale
    scores = np.matmul(query * factor, np.swapaxes(key, -1, -2)) + added
    scores = np.where(hidden, -np.inf, scores)
    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isinf(peak), 0, peak))
    total = weights.sum(axis=-1, keepdims=True)
    return np.matmul(weights / np.where(total == 0, 1, total), value)


@reference
def scaled_dot_product_attention_reference(
    query: Array, key: Array, value: Array, *, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Array:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (np.repeat(one, times, axis=-3) for one in (key, value))
    shape = query.shape[-2], key.shape[-2]
    hidden = ~np.tri(*shape, dtype=bool) if is_causal else np.zeros(shape, bool)
    return _attention(query, key, value, scale, hidden, np.zeros((), query.dtype))


@reference
def masked_attention_reference(
    query: Array, key: Array, value: Array, mask: Array, *, scale: float | None
) -> Array:
    if mask.dtype.kind == "b":
        return _attention(query, key, value, scale, ~mask, np.zeros((), query.dtype))
    return _attention(query, key, value, scale, np.zeros((), bool), mask)
