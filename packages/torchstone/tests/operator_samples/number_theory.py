"""Samples of ``lowering.aten.number_theory``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import pairs

aten = namespace("aten")


@samples(aten.gcd.default, aten.lcm.default, gradient=False)
def _divisors(make: Make) -> Iterator[Sample]:
    some = make.tensor([0, 1, -1, 12, -18, 30, 35, 97, 100, -128])
    yield Sample((some[:, None], some), note="zeros and signs")
    yield from pairs(make)
