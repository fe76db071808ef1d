"""Samples of ``lowering.aten.loss``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
REDUCTIONS = (1, 0, 2)
"""Mean, none, sum."""


def forward(make: Make, *parameters: Any, **target: float) -> Iterator[Sample]:
    """Operands of ``f(self, target, reduction, *parameters)``."""
    for reduction in REDUCTIONS:
        yield Sample((make(3, 4), make(3, 4, **target), reduction, *parameters))
    yield Sample((make(0, 3), make(0, 3, **target), 2, *parameters), note="empty")
    yield Sample((make(), make(**target), 1, *parameters), note="0-d")
    yield Sample((make.transposed(3, 4), make(3, 4, **target), 0, *parameters), note="non-contiguous")
    yield Sample((make(3, 1), make(1, 1, **target), 0, *parameters), note="broadcast")


def backward(make: Make, *parameters: Any, **target: float) -> Iterator[Sample]:
    """Operands of ``f(grad, self, target, reduction, *parameters)``."""
    for reduction in REDUCTIONS:
        grad = make(3, 4) if reduction == 0 else make()
        yield Sample((grad, make(3, 4), make(3, 4, **target), reduction, *parameters))
    yield Sample((make(), make(), make(**target), 1, *parameters), note="0-d")
    yield Sample((make(), make.transposed(3, 4), make(3, 4, **target), 2, *parameters), note="non-contiguous")


@samples(aten.mse_loss.default, aten.soft_margin_loss.default)
def _plain(make: Make) -> Iterator[Sample]:
    yield from forward(make)


@samples(aten.mse_loss_backward.default, aten.soft_margin_loss_backward.default, gradient=False)
def _plain_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make)


@samples(aten.smooth_l1_loss.default, aten.huber_loss.default)
def _bent(make: Make) -> Iterator[Sample]:
    yield from forward(make, 1.5)


@samples(aten.smooth_l1_loss_backward.default, aten.huber_loss_backward.default, gradient=False)
def _bent_backward(make: Make) -> Iterator[Sample]:
    yield from backward(make, 1.5)


def probabilities(make: Make, *shape: int) -> torch.Tensor:
    return make(*shape, low=0.0, high=1.0)


@samples(aten.binary_cross_entropy.default)
def _bce(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((probabilities(make, 3, 4), probabilities(make, 3, 4), None, reduction))
    yield Sample((probabilities(make, 3, 4), probabilities(make, 3, 4), make(4), 1), note="weight")
    yield Sample((make.tensor([0, 1, 0, 1]), make.tensor([0, 0, 1, 1]), None, 0), note="certain")
    yield Sample((probabilities(make), probabilities(make)), note="0-d")
    yield Sample((probabilities(make, 0), probabilities(make, 0)), note="empty")


@samples(aten.binary_cross_entropy_backward.default, gradient=False)
def _bce_backward(make: Make) -> Iterator[Sample]:
    x, t = probabilities(make, 3, 4), probabilities(make, 3, 4)
    yield Sample((make(), x, t))
    yield Sample((make(3, 4), x, t, make(3, 4), 0), note="weight")
    yield Sample((make(), x, t, None, 2))
    yield Sample((make(4), make.tensor([0, 1, 0, 1]), make.tensor([0, 0, 1, 1]), None, 0), note="certain")


@samples(aten.binary_cross_entropy_with_logits.default)
def _bce_logits(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(3, 4), probabilities(make, 3, 4), None, None, reduction))
    yield Sample(
        (make(3, 4), probabilities(make, 3, 4), make(4), make(4, low=0.5, high=3), 1), note="weights"
    )
    yield Sample((make(), probabilities(make)), note="0-d")
    yield Sample((make(0, 2), probabilities(make, 0, 2)), note="empty")
    yield Sample((make.tensor([-100, 100, 0]), make.tensor([1, 0, 1]), None, None, 0), note="saturated")
