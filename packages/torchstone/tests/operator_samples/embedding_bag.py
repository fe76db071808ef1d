"""Samples of ``lowering.aten.embedding_bag``.

The rows that the maxima came from have a meaning only in the mode that takes maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
SUM, MEAN, MAX = 0, 1, 2
INDICES = torch.tensor([4, 1, 4, 0, 3, 2])
"""The repeated row is the last one: for others, eager scales gradients by a wrong frequency."""
OFFSETS = torch.tensor([0, 2, 2, 5])
"""Offsets in which the second bag is empty."""

Outputs = Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]]


def _without(*unset: int) -> Outputs:
    """Leave out outputs whose memory PyTorch does not initialize."""
    return lambda outputs: [output for position, output in enumerate(outputs) if position not in unset]


def _bags(make: Make) -> Iterator[Sample]:
    weight = make(5, 3)
    # For sums PyTorch saves nothing, although its metadata functions promise these outputs.
    unset = _without(1, 2, 3)
    last = torch.tensor([0, 2, 2, 6])
    yield Sample((weight, INDICES, OFFSETS, False, SUM), canonical=unset)
    yield Sample(
        (weight, INDICES, OFFSETS, False, MEAN, False, None, False, 1), canonical=_without(3), note="padding"
    )
    yield Sample((weight, INDICES, OFFSETS, False, MAX), note="maximum")
    yield Sample(
        (weight, INDICES, last, False, MAX, False, None, True, 0), canonical=_without(2), note="last offset"
    )
    yield Sample((weight, INDICES, OFFSETS, False, SUM, False, make(6)), canonical=unset, note="weights")
    yield Sample((weight, INDICES.int(), OFFSETS.int(), False, MEAN), canonical=_without(3), note="int32")
    yield Sample((weight, INDICES[:0], OFFSETS[:1]), canonical=unset, note="empty")
    yield Sample(
        (weight, INDICES, OFFSETS[:1], False, MEAN, False, None, False, -1),
        canonical=_without(3),
        note="one bag",
    )


@samples(aten._embedding_bag.default)
def _embedding_bag(make: Make) -> Iterator[Sample]:
    yield from _bags(make)


@samples(aten._embedding_bag_forward_only.default, gradient=False)
def _embedding_bag_forward_only(make: Make) -> Iterator[Sample]:
    yield from _bags(make)


def _saved(make: Make, mode: int, padding: int) -> tuple[torch.Tensor, ...]:
    """Return what the forward saves for the backward."""
    _, bags, sizes, maxima = aten._embedding_bag(
        make(5, 3), INDICES, OFFSETS, False, mode, False, None, False, padding
    )
    return bags, sizes, maxima


@samples(aten._embedding_bag_backward.default, gradient=False)
def _embedding_bag_backward(make: Make) -> Iterator[Sample]:
    for mode, padding, frequency in ((SUM, -1, False), (MEAN, 1, True), (MAX, -1, False), (SUM, 4, True)):
        bags, sizes, maxima = _saved(make, mode, padding)
        fixed = (5, frequency, mode, False)
        yield Sample((make(4, 3), INDICES, OFFSETS, bags, sizes, maxima, *fixed, None, padding))
    bags, sizes, maxima = _saved(make, SUM, -1)
    yield Sample(
        (make(4, 3), INDICES, OFFSETS, bags, sizes, maxima, 5, False, SUM, False, make(6)), note="weights"
    )


@samples(aten._embedding_bag_dense_backward.default, gradient=False)
def _embedding_bag_dense_backward(make: Make) -> Iterator[Sample]:
    bags = torch.tensor([0, 0, 2, 2, 2, 3])
    for mode, padding, frequency in ((SUM, -1, False), (MEAN, 1, True), (MAX, -1, False), (SUM, 4, True)):
        _, sizes, maxima = _saved(make, mode, padding)
        yield Sample((make(4, 3), INDICES, bags, sizes, maxima, 5, frequency, mode, None, padding))


@samples(aten._embedding_bag_per_sample_weights_backward.default, gradient=False)
def _embedding_bag_per_sample_weights_backward(make: Make) -> Iterator[Sample]:
    bags = torch.tensor([0, 0, 2, 2, 2, 3])
    yield Sample((make(4, 3), make(5, 3), INDICES, OFFSETS, bags, SUM))
    yield Sample((make(4, 3), make(5, 3), INDICES, OFFSETS, bags, SUM, 1), note="padding")
    yield Sample((make(4, 3), make(5, 3), INDICES, OFFSETS, bags[:0], SUM), note="bags left out")
    yield Sample((make(1, 3), make(5, 3), INDICES[:0], OFFSETS[:1], bags[:0], SUM), note="empty")
