"""Samples of ``lowering.aten.class_loss``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
REDUCTIONS = (1, 0, 2)
"""Mean, none, sum."""


@samples(aten.nll_loss_forward.default)
def _nll(make: Make) -> Iterator[Sample]:
    targets = torch.tensor([1, 0, 2, 2, 1])
    for reduction in REDUCTIONS:
        yield Sample((make(5, 3), targets, None, reduction, -100))
    yield Sample((make(5, 3), targets, make(3, low=0.5, high=2), 1, 2), note="weight, ignored class")
    yield Sample((make(3), torch.tensor(2), make(3), 1, -100), note="one sample")
    yield Sample((make(3), torch.tensor(2), None, 0, -100), note="one sample, not reduced")
    yield Sample((make(0, 3), torch.zeros(0, dtype=torch.int64), None, 2, -100), note="empty")
    yield Sample((make(2, 3), torch.tensor([1, 1]), None, 1, 1), note="all ignored")


@samples(aten.nll_loss_backward.default, gradient=False)
def _nll_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for sample in _nll(make):
        result, total = aten.nll_loss_forward(*sample.args)
        yield Sample((make(*result.shape), *sample.args, total), note=sample.note)


@samples(aten.nll_loss2d_forward.default)
def _nll2d(make: Make) -> Iterator[Sample]:
    targets = torch.tensor([[[0, 1], [2, 1]], [[1, 1], [0, 2]]])
    for reduction in REDUCTIONS:
        yield Sample((make(2, 3, 2, 2), targets, None, reduction, -100))
    yield Sample((make(2, 3, 2, 2), targets, make(3, low=0.5, high=2), 1, 1), note="weight, ignored class")


@samples(aten.nll_loss2d_backward.default, gradient=False)
def _nll2d_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for sample in _nll2d(make):
        result, total = aten.nll_loss2d_forward(*sample.args)
        yield Sample((make(*result.shape), *sample.args, total), note=sample.note)
