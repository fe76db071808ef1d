"""Samples of ``lowering.aten.float_parts``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import edge_pairs, pairs, singles, with_number

aten = namespace("aten")


@samples(aten.copysign.Tensor)
def _copysign(make: Make) -> Iterator[Sample]:
    yield from pairs(make)
    yield from edge_pairs(make)


@samples(aten.copysign.Scalar)
def _copysign_of_number(make: Make) -> Iterator[Sample]:
    yield from with_number(make, -2.0, -0.0, 3)


@samples(aten.nextafter.default, gradient=False)
def _nextafter(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield from pairs(make)


@samples(aten.frexp.Tensor)
def _frexp(make: Make) -> Iterator[Sample]:
    yield from singles(make)
    if make.is_float:
        tiny = torch.finfo(make.dtype).tiny
        yield Sample((make.tensor([tiny / 2, -tiny / 4, tiny * 0.75]),), note="subnormal")
