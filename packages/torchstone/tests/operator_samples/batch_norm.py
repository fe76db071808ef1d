"""Samples of ``lowering.aten.batch_norm``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
UNDIFFERENTIABLE = (
    "autograd refuses running statistics that require a gradient; the backward overload has samples"
)


def running(make: Make, channels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Running mean and variance."""
    return make(channels), make(channels, low=0.5, high=3)


def inputs(make: Make) -> Iterator[tuple[torch.Tensor, str]]:
    yield make(4, 3, 2, 2), ""
    yield make(5, 2), "no further axes"
    yield make.transposed(3, 2, 4), "non-contiguous"
    yield make(2, 1, 3), "size 1"


@samples(aten._native_batch_norm_legit_functional.default, gradient=False, reason=UNDIFFERENTIABLE)
def _functional(make: Make) -> Iterator[Sample]:
    for x, note in inputs(make):
        c = x.shape[1]
        yield Sample((x, make(c), make(c), *running(make, c), True, 0.1, 1e-5), note=note)
    yield Sample((make(4, 3, 2), None, None, *running(make, 3), True, 0.3, 1e-3), note="no weight")
    yield Sample((make(4, 3, 2), make(3), None, *running(make, 3), False, 0.1, 1e-5), note="inference")
    wide = [make(3, dtype=torch.float32) for _ in range(3)]
    var = make(3, low=0.5, high=3, dtype=torch.float32)
    yield Sample((make(4, 3, 2), *wide, var, True, 0.1, 1e-5), note="float32 parameters")


@samples(aten._native_batch_norm_legit_no_training.default, gradient=False, reason=UNDIFFERENTIABLE)
def _no_training(make: Make) -> Iterator[Sample]:
    for x, note in inputs(make):
        c = x.shape[1]
        yield Sample((x, make(c), make(c), *running(make, c), 0.1, 1e-5), note=note)
    yield Sample((make(0, 3, 2), None, None, *running(make, 3), 0.1, 1e-5), note="empty, no weight")


@samples(aten._native_batch_norm_legit.no_stats)
def _no_stats(make: Make) -> Iterator[Sample]:
    for x, note in inputs(make):
        c = x.shape[1]
        yield Sample((x, make(c), make(c), True, 0.1, 1e-5), note=note)
    yield Sample((make(4, 3, 2), None, None, True, 0.1, 1e-3), note="no weight")


@samples(aten._batch_norm_with_update_functional.default, gradient=False, reason=UNDIFFERENTIABLE)
def _with_update(make: Make) -> Iterator[Sample]:
    for x, note in inputs(make):
        c = x.shape[1]
        yield Sample((x, make(c), make(c), *running(make, c), 0.1, 1e-5), note=note)


@samples(aten.native_batch_norm_backward.default, gradient=False)
def _backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for x, note in inputs(make):
        c = x.shape[1]
        weight, stats = make(c), running(make, c)
        _, mean, invstd = aten._native_batch_norm_legit.no_stats(x, weight, None, True, 0.1, 1e-5)
        args = (make(*x.shape), x, weight, *stats, mean, invstd, True, 1e-5, [True, True, True])
        yield Sample(args, note=note)
    x, stats = make(4, 3, 2), running(make, 3)
    yield Sample(
        (make(4, 3, 2), x, None, *stats, make(0), make(0), False, 1e-5, [True, False, False]),
        note="inference",
    )


@samples(aten.batch_norm_backward.default, gradient=False)
def _backward_renamed(make: Make) -> Iterator[Sample]:
    reserve = torch.empty(0, dtype=torch.uint8)
    for sample in _backward(make):
        grad, x, weight, *rest = sample.args
        weight = make(x.shape[1]) if weight is None else weight
        yield Sample((grad, x, weight, *rest, reserve), note=sample.note)
