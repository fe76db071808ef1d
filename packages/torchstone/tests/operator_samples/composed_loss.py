"""Samples of ``lowering.aten.composed_loss``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .loss import REDUCTIONS, forward, probabilities

aten = namespace("aten")
own = torch.ops.torchstone
NAMES = ("mean", "none", "sum")


def signs(*shape: int) -> torch.Tensor:
    """Targets that say whether a pair belongs together: 1 or −1."""
    return torch.where(torch.rand(shape) < 0.5, 1, -1)


@samples(aten.cross_entropy_loss.default)
def _cross_entropy(make: Make) -> Iterator[Sample]:
    weight = make(5, low=0.1, high=2.0)
    yield Sample((make(4, 5), make.indices(4, high=5), weight, 1, 2, 0.1), note="all options")
    yield Sample((make(4, 5), probabilities(make, 4, 5), None, 1, -100, 0.2), note="probabilities")
    for reduction in REDUCTIONS:
        yield Sample((make(4, 5), make.indices(4, high=5), None, reduction))
    yield Sample((make(2, 5, 3), make.indices(2, 3, high=5), weight, 0, -100, 0.1), note="with places")
    yield Sample((make(2, 3, 2), probabilities(make, 2, 3, 2), make(3), 2), note="weighted probabilities")
    yield Sample((make(5), torch.tensor(3)), note="no batch")
    yield Sample((make(0, 5), make.indices(0, high=5), None, 2), note="empty")


@samples(aten.l1_loss.default)
def _l1(make: Make) -> Iterator[Sample]:
    yield from forward(make)


@samples(aten.kl_div.default)
def _kl_div(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(3, 4), probabilities(make, 3, 4), reduction))
        yield Sample((make(3, 4), make(3, 4), reduction), {"log_target": True}, note="logarithms")
    yield Sample((make(2, 3), make.tensor([[0, 1, 0], [1, 0, 0]]), 0), note="zeros")
    yield Sample((make(0, 3), probabilities(make, 0, 3), 2), note="empty")


@samples(aten.triplet_margin_loss.default)
def _triplet(make: Make) -> Iterator[Sample]:
    given = make(4, 6), make(4, 6), make(4, 6)
    yield Sample((*given, 1.5, 2.0, 1e-6, False, 0))
    yield Sample((*given, 9.0, 1.0, 1e-3, True, 1), note="swapped")
    yield Sample((make(6), make(6), make(6), 5.0, 2.0, 1e-6, True, 2), note="no batch")


@samples(aten.cosine_embedding_loss.default)
def _cosine(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(4, 6), make(4, 6), signs(4), 0.25, reduction))
    yield Sample((make(6), make(6), torch.tensor(-1)), note="no batch")


@samples(aten.margin_ranking_loss.default)
def _ranking(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(5), make(5), signs(5), 0.5, reduction))


@samples(aten.hinge_embedding_loss.default)
def _hinge(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(3, 4), signs(3, 4), 2.5, reduction))


@samples(aten.poisson_nll_loss.default)
def _poisson(make: Make) -> Iterator[Sample]:
    def given(log_input: bool, full: bool, reduction: int) -> Sample:
        counts = make(3, 4, low=0, high=5)
        rates = make(3, 4, low=-2, high=2) if log_input else make(3, 4, low=0, high=4)
        return Sample((rates, counts, log_input, full, 1e-3, reduction))

    yield given(log_input=True, full=False, reduction=1)
    yield given(log_input=False, full=True, reduction=0)
    yield given(log_input=True, full=True, reduction=2)


@samples(own.gaussian_nll_loss.default)
def _gaussian(make: Make) -> Iterator[Sample]:
    def given(*var: int, full: bool, reduction: str) -> Sample:
        x, y, variances = make(3, 4), make(3, 4), make(*var, low=-1, high=3)
        return Sample((x, y, variances, full, 1e-2, reduction))

    yield given(3, 4, full=False, reduction="mean")
    yield given(3, full=True, reduction="none")
    yield given(3, 1, full=True, reduction="sum")


@samples(own.multilabel_soft_margin_loss.default)
def _multilabel(make: Make) -> Iterator[Sample]:
    labels: Any = make.bools(3, 4).to(make.dtype)
    for reduction in NAMES:
        yield Sample((make(3, 4), labels, None, reduction))
    yield Sample((make(3, 4), labels, make(4), "mean"), note="weight")
