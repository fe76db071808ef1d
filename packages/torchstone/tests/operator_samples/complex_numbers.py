"""Samples of ``lowering.aten.complex_numbers``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, defaults, samples
from .elementwise import edge_pairs, pairs, singles

aten = namespace("aten")


@samples(aten.complex.default)
def _complex(make: Make) -> Iterator[Sample]:
    yield from pairs(make)
    yield from edge_pairs(make)


@samples(aten.polar.default)
def _polar(make: Make) -> Iterator[Sample]:
    yield from pairs(make)


@samples(*defaults(aten, "real imag view_as_real view_as_real_copy angle"))
@samples(*defaults(aten, "_conj _conj_copy _conj_physical conj_physical _neg_view _neg_view_copy"))
def _parts(make: Make) -> Iterator[Sample]:
    yield from singles(make)


@samples(aten.view_as_complex.default, aten.view_as_complex_copy.default)
def _pairs_of_parts(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 2),))
    yield Sample((make(2),), note="0-d result")
    yield Sample((make(0, 2),), note="empty")
    yield Sample((make(4, 3, 2)[::2],), note="non-contiguous")
    yield Sample((make(1, 1, 2),), note="size 1")
