"""Samples of ``lowering.aten.sampling``; their distributions: ``lowering/test_random.py``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.randperm.default, random=True)
def _randperm(make: Make) -> Iterator[Sample]:
    for n in (5, 0, 1):
        yield Sample((n,), {"dtype": make.dtype})


@samples(aten.randperm.generator, random=True)
def _randperm_generator(make: Make) -> Iterator[Sample]:
    yield Sample((5,), {"dtype": make.dtype, "generator": None})


@samples(aten.multinomial.default, random=True)
def _multinomial(make: Make) -> Iterator[Sample]:
    weights = make(2, 5, low=0.1, high=2)
    yield Sample((weights, 3))
    yield Sample((weights, 7, True))
    yield Sample((weights[0], 2), note="one row")
    yield Sample((weights[:, :1], 4, True), note="one category")
