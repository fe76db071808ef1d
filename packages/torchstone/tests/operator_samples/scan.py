"""Samples of ``lowering.aten.scan``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .extremum import with_ties

aten = namespace("aten")
own = torch.ops.torchstone


def along(make: Make, low: float | None = None, high: float | None = None) -> Iterator[Sample]:
    yield Sample((make(3, 5, low=low, high=high), 1))
    yield Sample((make.transposed(5, 3, low=low, high=high), 0), note="non-contiguous")
    yield Sample((make(low=low, high=high), 0), note="0-d")
    yield Sample((make(0, 3), 0), note="empty axis")
    yield Sample((make(0, 3), 1), note="empty result")
    yield Sample((make(2, 1, 3, low=low, high=high), -2), note="size 1")
    yield Sample((make(17, low=low, high=high), 0), note="several rounds")


@samples(aten.cumsum.default)
def _cumsum(make: Make) -> Iterator[Sample]:
    yield from along(make)
    yield Sample((make(2, 4), -1), {"dtype": torch.float64})
    if make.is_float:
        inf, nan = float("inf"), float("nan")
        yield Sample((make.tensor([-0.0, 0.0, 1.0, inf, 2.0, -inf, 1.0, nan, 0.0]), 0), note="special values")


@samples(aten.cumprod.default)
def _cumprod(make: Make) -> Iterator[Sample]:
    yield from along(make, low=-2, high=3)
    yield Sample((make(2, 4), -1), {"dtype": torch.float64})
    yield Sample((make.tensor([2, 0, 3, 0, 1]), 0), note="zeros")


@samples(aten.cummax.default, aten.cummin.default)
def _extremes(make: Make) -> Iterator[Sample]:
    yield Sample((with_ties(make), 1), note="ties, special values")
    yield Sample((with_ties(make), 0), note="ties, special values")
    yield from along(make)


@samples(aten.logcumsumexp.default)
def _logcumsumexp(make: Make) -> Iterator[Sample]:
    yield from along(make)
    if make.is_float:
        inf = float("inf")
        rows = [[-inf, -inf, 1.0, 1e4], [1.0, inf, inf, -inf], [0.0, float("nan"), 1.0, 2.0]]
        yield Sample((make.tensor(rows), 1), note="infinite")


@samples(own.linear_recurrence.default)
def _linear_recurrence(make: Make) -> Iterator[Sample]:
    for reverse in (False, True):
        small = {"low": -1, "high": 1}
        yield Sample((make(5, 2, 3, **small), make(5, 2, 3), 0, reverse))
        yield Sample((make(2, 20, 3, **small), make(2, 20, 3), 1, reverse))
        yield Sample((make(3, 4, **small), make(3, 4), -1, reverse))
        yield Sample((make(7, **small), make(7), 0, reverse), note="1-d")
        yield Sample((make(2, 1), make(2, 1), 1, reverse), note="one step")
        yield Sample((make(0, 3), make(0, 3), 1, reverse), note="empty result")
        transposed = (make.transposed(4, 3, **small), make(4, 3), 0, reverse)
        yield Sample(transposed, note="non-contiguous")
    if make.is_float:
        inf, nan = float("inf"), float("nan")
        factors = make.tensor([nan, 0.0, 1.0, inf, 0.5, -1.0])
        yield Sample((factors, make.tensor([1.0, 2.0, 0.0, 0.0, -1.0, 3.0]), 0, False), note="special values")


@samples(aten.diff.default)
def _diff(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), 2, 0))
    yield Sample((make(3, 5), 1, -1, make(3, 1), make(3, 2)), note="prepended and appended")
    yield Sample((make(3, 2), 3), note="more often than there are elements")
