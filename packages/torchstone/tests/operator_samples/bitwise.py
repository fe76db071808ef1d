"""Samples of ``lowering.aten.bitwise``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import edge_pairs, number_with, pairs, singles, with_number

aten = namespace("aten")

_LOGIC = (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)


@samples(*(packet.Tensor for packet in _LOGIC), gradient=False)
def _logic(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield from pairs(make)


@samples(*(packet.Scalar for packet in _LOGIC), gradient=False)
def _logic_with_number(make: Make) -> Iterator[Sample]:
    yield from with_number(make, 6, True)


@samples(*(packet.Scalar_Tensor for packet in _LOGIC), gradient=False)
def _logic_of_number(make: Make) -> Iterator[Sample]:
    yield from number_with(make, 6, True)


@samples(aten.bitwise_not.default, gradient=False)
def _not(make: Make) -> Iterator[Sample]:
    yield from singles(make)


_SHIFTS = (aten.bitwise_left_shift, aten.bitwise_right_shift)


@samples(
    *(packet.Tensor for packet in _SHIFTS), aten.__lshift__.Tensor, aten.__rshift__.Tensor, gradient=False
)
def _shifts(make: Make) -> Iterator[Sample]:
    values = make.edges()[:, None]
    amounts = torch.tensor([0, 1, 5, 7, 8, 15, 16, 31, 32, 63, 64, 65, 100])
    yield Sample((values, amounts.to(make.dtype)), note="up to and past every width")
    yield Sample((values, make.tensor([1, -1, -8, -100])), note="negative amounts")
    yield from pairs(make, low=0, high=8)


@samples(
    *(packet.Tensor_Scalar for packet in _SHIFTS),
    aten.__lshift__.Scalar,
    aten.__rshift__.Scalar,
    gradient=False,
)
def _shifts_by_number(make: Make) -> Iterator[Sample]:
    yield from with_number(make, 3, 0, 70, -1)


@samples(*(packet.Scalar_Tensor for packet in _SHIFTS), gradient=False)
def _shifts_of_number(make: Make) -> Iterator[Sample]:
    yield from number_with(make, 77, low=0, high=10)
