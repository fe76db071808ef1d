"""Choose the next token with tensor operations: the largest logit, or a draw from a truncated distribution.

Options apply as in transformers, and in its order: ``temperature``, then ``top_k``, then ``top_p``.
"""

from __future__ import annotations

import torch
from torch import Tensor


def largest(logits: Tensor) -> Tensor:
    """Return the token with the largest of ``logits``, ``[batch, vocabulary]``, as int64 ``[batch]``.

    Of equal logits, the first is chosen.
    """
    return logits.argmax(-1)


def drawn(logits: Tensor, uniform: Tensor, temperature: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Draw a token for each row of ``logits``, float32 ``[batch, vocabulary]``; return int64 ``[batch]``.

    ``uniform`` is float32 ``[batch]`` in [0, 1), and selects a token by the inverse of the distribution
    function. ``temperature``, ``top_p`` (float32) and ``top_k`` (int64) are 0-d. Tokens as probable as the
    last of the ``top_k`` are kept as well. A ``top_k`` of 0 and a ``top_p`` of 1 keep all tokens.
    """
    scores, tokens = (logits / temperature).sort(-1, descending=True)
    size = scores.shape[-1]
    last = torch.where(top_k == 0, size, top_k).clamp(max=size) - 1
    scores = scores.masked_fill(scores < scores.index_select(-1, last.reshape(1)), float("-inf"))
    probability = scores.softmax(-1)
    before = probability.cumsum(-1) - probability
    kept = (probability > 0) & ((before < top_p) | (top_p >= 1))
    kept = kept | (torch.arange(size) == 0)  # keep at least one token
    mass = probability.where(kept, 0).cumsum(-1)
    place = (mass <= uniform[:, None] * mass[:, -1:]).sum(-1, keepdim=True)
    place = torch.minimum(place, kept.sum(-1, keepdim=True) - 1)  # rounding may go past the last kept token
    return tokens.gather(-1, place)[:, 0]
