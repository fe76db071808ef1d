"""Samples of ``lowering.aten.ctc``.

log α, the second result, is unspecified beyond each target's and input's own length: the loss is compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
TIME, BATCH, CLASSES = 7, 3, 5


def log_probs(make: Make, time: int = TIME, batch: int = BATCH) -> torch.Tensor:
    return make(time, batch, CLASSES, low=-2, high=2).log_softmax(-1)


def labels(*shape: int) -> torch.Tensor:
    return torch.randint(1, CLASSES, shape)


def loss(outputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    return outputs[:1]


def cases() -> Iterator[tuple[torch.Tensor, list[int], list[int], dict[str, Any], str]]:
    """Yield targets, lengths of the inputs, lengths of the targets, options and a note."""
    yield labels(BATCH, 3), [7, 5, 6], [3, 1, 2], {}, "padded targets"
    yield labels(6), [7, 7, 7], [3, 1, 2], {}, "targets in one row"
    yield torch.tensor([[1, 1, 1], [2, 2, 3], [1, 2, 1]]), [7, 5, 3], [3, 3, 3], {}, "repeated labels"
    yield labels(BATCH, 4), [2, 7, 7], [4, 0, 4], {"zero_infinity": True}, "impossible, and an empty target"
    yield labels(BATCH, 3) - 1, [7, 6, 5], [3, 2, 1], {"blank": 4}, "another blank"


@samples(aten._ctc_loss.default)
def _ctc_loss(make: Make) -> Iterator[Sample]:
    for targets, inputs, lengths, options, note in cases():
        yield Sample((log_probs(make), targets, inputs, lengths), options, note, canonical=loss)
    yield Sample(
        (log_probs(make, batch=0), labels(0, 3), [], []), note="empty", gradient=False, canonical=loss
    )


@samples(aten._ctc_loss.Tensor)
def _ctc_loss_of_tensors(make: Make) -> Iterator[Sample]:
    for targets, inputs, lengths, options, note in cases():
        sizes = torch.tensor(inputs), torch.tensor(lengths)
        yield Sample((log_probs(make), targets, *sizes), options, note, canonical=loss)


@samples(aten._ctc_loss_backward.default, gradient=False)
def _ctc_loss_backward(make: Make) -> Iterator[Sample]:
    for targets, inputs, lengths, options, note in cases():
        given = (log_probs(make), targets, inputs, lengths)
        blank, zero = options.get("blank", 0), options.get("zero_infinity", False)
        nll, alpha = aten._ctc_loss(*given, blank, zero)
        yield Sample((make(BATCH), *given, nll, alpha, blank, zero), note=note)


@samples(aten._ctc_loss_backward.Tensor, gradient=False)
def _ctc_loss_backward_of_tensors(make: Make) -> Iterator[Sample]:
    for sample in _ctc_loss_backward(make):
        grad, probs, targets, inputs, lengths, *rest = sample.args
        yield Sample(
            (grad, probs, targets, torch.tensor(inputs), torch.tensor(lengths), *rest), note=sample.note
        )
