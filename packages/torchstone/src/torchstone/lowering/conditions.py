"""Requirements of eager PyTorch on values, with its error messages: the rules in ``values=`` of lowerings.

Conditions are written in PyTorch, so that they also run on plain tensors. Messages leave out the numbers that
only a running kernel knows. Rules for failed factorizations are in :mod:`.linear_algebra.failures`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from .checks import ValueRule

Tensor = torch.Tensor


def _nonzero(self: Any, other: Any) -> Tensor | None:
    if not isinstance(other, Tensor):
        return None
    kind = torch.result_type(self, other)
    if kind.is_floating_point or kind.is_complex:
        return None
    return (torch.broadcast_tensors(self, other)[1] if isinstance(self, Tensor) else other) != 0


def _nonzero_if_rounded(self: Any, other: Any, rounding_mode: str | None) -> Tensor | None:
    return None if rounding_mode is None else _nonzero(self, other)


DIVISOR = ValueRule("ZeroDivisionError", _nonzero)
ROUNDED_DIVISOR = ValueRule("ZeroDivisionError", _nonzero_if_rounded)


# Random numbers ----------------------------------------------------------------------


def _probability(p: Tensor) -> Tensor:
    return (p >= 0) & (p <= 1)


BERNOULLI = "Expected p_in >= 0 && p_in <= 1 to be true, but got false."
BERNOULLI_P = ValueRule(BERNOULLI, lambda p: _probability(p))
BERNOULLI_SELF = ValueRule(BERNOULLI, lambda self: _probability(self))
DEVIATION = ValueRule(
    "normal expects all elements of std >= 0.0", lambda std: std >= 0 if isinstance(std, Tensor) else None
)
WEIGHTS = (
    ValueRule(
        "probability tensor contains either `inf`, `nan` or element < 0",
        lambda self: (self >= 0) & torch.isfinite(self),
    ),
    # The rule above covers sums that are NaN or overflow.
    ValueRule(
        "invalid multinomial distribution (sum of probabilities <= 0)", lambda self: (self != 0).any(-1)
    ),
)


# Losses ------------------------------------------------------------------------------

CROSS_ENTROPY = (
    ValueRule("all elements of input should be between 0 and 1", lambda self: _probability(self)),
    ValueRule("all elements of target should be between 0 and 1", lambda target: _probability(target)),
)


def _few_steps(log_probs: Tensor, input_lengths: Any) -> Tensor | None:
    return input_lengths <= log_probs.shape[0] if isinstance(input_lengths, Tensor) else None


def _not_negative(lengths: Any) -> Tensor | None:
    return lengths >= 0 if isinstance(lengths, Tensor) else None


def _enough_targets(targets: Tensor, target_lengths: Any) -> Tensor | None:
    if not isinstance(target_lengths, Tensor):
        return None
    if targets.dim() == 1:
        return target_lengths.sum() == targets.shape[0]
    return target_lengths <= targets.shape[1]


CTC_LENGTHS = (
    ValueRule(
        "Expected input_lengths to have value at least 0", lambda input_lengths: _not_negative(input_lengths)
    ),
    ValueRule("Expected input_lengths to have value at most the number of steps of log_probs", _few_steps),
    ValueRule(
        "Expected target_lengths to have value at least 0",
        lambda target_lengths: _not_negative(target_lengths),
    ),
    ValueRule("Expected 'targets' to have the size that target_lengths ask for", _enough_targets),
)


# Positions and counts ----------------------------------------------------------------

CLASSES = (
    ValueRule("Class values must be non-negative.", lambda self: self >= 0),
    ValueRule(
        "Class values must be smaller than num_classes.",
        lambda self, num_classes: self < num_classes if num_classes >= 0 else None,
    ),
)


def _all_finite(self: Tensor, range: Any) -> Tensor | None:
    return torch.isfinite(self) if range is None else None


HISTC = ValueRule(
    "torch.histc: the range of the input is not finite",
    lambda self, min, max: torch.isfinite(self) if min == max else None,
)
HISTOGRAM = ValueRule("torch.histogramdd: a dimension's range is not finite", _all_finite)

REPEATS = (
    ValueRule("repeats can not be negative", lambda repeats: repeats >= 0),
    ValueRule(
        "allocated size does not match required size",
        lambda repeats, result: repeats.sum() == result.shape[0],
    ),
)


def _in_sequence(sorted_sequence: Tensor, sorter: Tensor | None) -> Tensor | None:
    return None if sorter is None else (sorter >= 0) & (sorter < sorted_sequence.shape[-1])


SORTER = ValueRule("torch.searchsorted(): sorter index out of range", _in_sequence)


def unpooled(rank: int) -> ValueRule:
    """Return the rule for unpooling over the last ``rank`` axes: each index is a position in the result."""

    def holds(indices: Tensor, result: Tensor) -> Tensor:
        return (indices >= 0) & (indices < math.prod(result.shape[-rank:]))

    return ValueRule("Found an invalid max index", holds)


OFFSETS = (
    ValueRule("offsets[0] has to be 0", lambda offsets: offsets[:1] == 0),
    ValueRule(
        "offsets[-1] can not be greater than input's length",
        lambda offsets, indices: offsets[-1:] <= indices.shape[0],
    ),
)
SOURCE = ValueRule(
    "Number of elements of source < number of ones in mask",
    lambda self, mask, source: (
        mask.expand(torch.broadcast_shapes(self.shape, mask.shape)).sum() <= source.numel()
    ),
)


def _selected(grad_output: Tensor, mask: Tensor, sizes: Any) -> Tensor:
    held = mask.expand(torch.broadcast_shapes(grad_output.shape, mask.shape))
    return held.sum() <= math.prod(sizes)


def _as_many_as_selected(self: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor | None:
    given = [(axis, index) for axis, index in enumerate(indices) if index is not None]
    if len(given) != 1 or given[0][1].dtype not in (torch.bool, torch.uint8):
        return None
    [(axis, mask)] = given
    place = values.ndim - (self.ndim - axis - mask.ndim) - 1  # the axis of values for the selected places
    if place < 0 or values.shape[place] == 1:
        return None
    return (mask != 0).sum() == values.shape[place]


def shape_mismatch(values: Tensor) -> str:
    """Return PyTorch's message for ``values`` that do not fit the elements that a mask selects."""
    return (
        f"shape mismatch: value tensor of shape {list(values.shape)} cannot be broadcast to indexing result"
    )


WRITTEN = ValueRule(lambda given: shape_mismatch(given["values"]), _as_many_as_selected)
SELECTED = ValueRule(lambda given: f"shape '{list(given['sizes'])}' is invalid for input", _selected)


def _in_quantized_range(zero_point: Tensor, quant_min: int, quant_max: int) -> Tensor | None:
    if zero_point.is_floating_point():
        return None
    return (zero_point >= quant_min) & (zero_point <= quant_max)


ZERO_POINTS = ValueRule(
    "`zero_point` must be between `quant_min` and `quant_max`.",
    _in_quantized_range,
)
