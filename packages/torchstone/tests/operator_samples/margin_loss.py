"""Samples of ``lowering.aten.margin_loss``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
REDUCTIONS = (1, 0, 2)
"""Mean, none, sum."""


@samples(aten.multi_margin_loss.default)
def _multi(make: Make) -> Iterator[Sample]:
    target = torch.tensor([2, 0, 1])
    yield Sample((make(3, 4, low=-1, high=1), target))
    yield Sample((make(3, 4, low=-1, high=1), target, 2, 0.5, make(4), 0), note="square, weight")
    yield Sample((make(4, low=-1, high=1), torch.tensor(3)), note="one sample")
    yield Sample((make(3, 4, low=-1, high=1), target, 1, 1.5, make(4), 2), note="weight, sum")
    yield Sample((make(3, 1), torch.tensor([0, 0, 0])), note="size 1")


@samples(aten.multi_margin_loss_backward.default, gradient=False)
def _multi_backward(make: Make) -> Iterator[Sample]:
    target = torch.tensor([2, 0, 1])
    yield Sample((make(), make(3, 4, low=-1, high=1), target, 1, 1))
    yield Sample((make(3), make(3, 4, low=-1, high=1), target, 2, 0.5, make(4), 0), note="square, weight")
    yield Sample((make(), make(4, low=-1, high=1), torch.tensor(3), 1, 1), note="one sample")
    yield Sample((make(), make(3, 4, low=-1, high=1), target, 1, 1.5, make(4), 2), note="weight, sum")


TARGETS = torch.tensor([[3, 0, -1, 1], [-1, 2, 2, 2], [1, 2, 3, 0]])


@samples(aten.multilabel_margin_loss_forward.default)
def _multilabel(make: Make) -> Iterator[Sample]:
    for reduction in REDUCTIONS:
        yield Sample((make(3, 4, low=-1, high=1), TARGETS, reduction))
        yield Sample((make(4, low=-1, high=1), TARGETS[0], reduction), note="one sample")
    yield Sample((make(2, 1), torch.tensor([[0], [-1]]), 0), note="size 1")


@samples(aten.multilabel_margin_loss_backward.default, gradient=False)
def _multilabel_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for sample in _multilabel(make):
        try:
            result, is_target = aten.multilabel_margin_loss_forward(*sample.args)
        except NotImplementedError:
            return
        yield Sample((make(*result.shape), *sample.args, is_target), note=sample.note)
