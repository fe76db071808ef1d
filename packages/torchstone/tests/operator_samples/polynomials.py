"""Samples of ``lowering.aten.polynomials``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.lowering.aten.polynomials import NAMES
from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .special import spread

aten = namespace("aten")
PACKETS = [getattr(aten, name) for name in NAMES]
DEGREES = [-2, 0, 1, 2, 3, 6, 7, 9, 10, 30]


@samples(*(packet.default for packet in PACKETS), gradient=False)
def _polynomial(make: Make) -> Iterator[Sample]:
    # A negative degree wraps in an unsigned dtype, and eager counts up to it one by one.
    unsigned = make.dtype in (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    degrees = torch.tensor(DEGREES[1:] if unsigned else DEGREES)[:, None]
    yield Sample((spread(make, -0.95, 0.95), degrees.to(make.dtype)), note="inside")
    if not make.is_float:
        return  # integers are converted to floats first, so the rest would repeat the float samples
    yield Sample((make.tensor([-1.0, 0.0, 1.0, 0.5]), degrees.to(make.dtype)), note="ends")
    yield Sample((spread(make, -3, 3), degrees[:8].to(make.dtype)), note="outside")
    yield Sample((make(0, 3), make(1, 3, low=0, high=5)), note="empty")
    yield Sample((make(low=-1, high=1), make(low=0, high=5)), note="0-d")
    yield Sample((make(3, low=-1, high=1), degrees), note="integer degree")
    yield Sample((spread(make, -0.95, 0.95), make.tensor([[600.0], [120.0]])), note="high degree")


@samples(*(packet.x_scalar for packet in PACKETS), gradient=False)
def _polynomial_at_scalar(make: Make) -> Iterator[Sample]:
    yield Sample((0.25, make(4, low=0, high=9)))
    if not make.is_float:
        return
    yield Sample((1.0, make(low=0, high=9)), note="0-d")
    yield Sample((2, make(0)), note="empty")


@samples(*(packet.n_scalar for packet in PACKETS), gradient=False)
def _polynomial_of_scalar_degree(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 2, low=-2, high=2), 5))
    if not make.is_float:
        return
    yield Sample((make(low=-1, high=1), 12), note="0-d")
    yield Sample((make(0), 3), note="empty")
