"""Samples of ``lowering.aten.trigonometry``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import edge_pairs, pairs, singles

aten = namespace("aten")


@samples(*(getattr(aten, name).default for name in ("sin", "cos", "tan", "sinh", "cosh", "asinh", "atan")))
def _everywhere(make: Make) -> Iterator[Sample]:
    yield from singles(make)
    yield Sample((make(40, low=-1, high=1),), note="small")


@samples(*(getattr(aten, name).default for name in ("asin", "acos", "atanh")))
def _inside_the_unit(make: Make) -> Iterator[Sample]:
    yield Sample((make(40, low=-1, high=1),), note="inside")
    yield from singles(make)


@samples(aten.acosh.default)
def _above_one(make: Make) -> Iterator[Sample]:
    yield Sample((make(40, low=1, high=9),), note="above 1")
    yield from singles(make)


@samples(aten.atan2.default)
def _atan2(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield from pairs(make)
