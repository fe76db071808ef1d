"""Samples of ``lowering.aten.elementary``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, defaults, samples
from .elementwise import edge_pairs, number_with, singles, special_values

aten = namespace("aten")


@samples(*defaults(aten, "exp exp2 expm1 sigmoid tanh ceil floor round trunc frac"))
def _everywhere(make: Make) -> Iterator[Sample]:
    yield from singles(make)
    yield Sample((make(40, low=-1, high=1),), note="small")


@samples(
    aten.log.default,
    aten.log10.default,
    aten.log1p.default,
    aten.sqrt.default,
    aten.rsqrt.default,
)
def _positive(make: Make) -> Iterator[Sample]:
    yield Sample((make(40, low=0, high=9),), note="positive")
    yield from singles(make)
    yield Sample((make.tensor([1, 2, 4, 8, 10, 16, 64, 100, 0]),), note="whole logarithms")


@samples(aten.log2.default)
def _log2(make: Make) -> Iterator[Sample]:
    # an infinite part leaves the other part of a complex number no tolerance, and eager's may be one ULP off
    yield Sample((make(40, low=0, high=9),), note="positive")
    for sample in singles(make, zeros=not make.is_complex):
        # the gradient of the smallest number divides by a subnormal one, which XLA flushes to zero
        yield replace(sample, gradient=sample.gradient and sample.note != "special values")
    yield Sample((make.tensor([1, 2, 4, 8, 10, 16, 64, 100, 0]),), note="whole logarithms")


@samples(aten.pow.Tensor_Tensor)
def _pow(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, low=0, high=9), make(3, low=-2, high=4)), note="broadcast")
    yield Sample((make.tensor([2, 3, 4, 1, -1, -2]), make.tensor([3, 2, 0, 9, 7, 5])), note="whole powers")
    # complex 0 ** 0 is 1 or NaN in eager, depending on the place in the tensor
    yield from edge_pairs(make, zeros=False)
    yield Sample(
        (make.tensor([0, 0, 0]), make.tensor([1, 2, 3])), note="powers of zero", gradient=not make.is_complex
    )
    yield Sample((make.tensor([2, 1, -1, -1, 7]), make.tensor([-3, -2, -3, -2, -1])), note="negative powers")
    yield Sample((make(), make(2, 3, low=0, high=4)), note="0-d left")
    yield Sample((make(2, 3), make(low=0, high=4)), note="0-d right")
    yield Sample((make(0, 3), make(1, 3)), note="empty")
    yield Sample((make.transposed(2, 3), make(2, 3, low=0, high=4)), note="non-contiguous")
    yield Sample((make(3), make(3, low=0, high=4, dtype=torch.int8)), note="mixed dtypes")


@samples(aten.pow.Tensor_Scalar)
def _pow_number(make: Make) -> Iterator[Sample]:
    yield Sample((special_values(make), 2), note="special values")
    yield Sample((make(7), 3))
    yield Sample((make(7, low=0, high=5), 0.5))
    yield Sample((make(7, low=0, high=5), 1.7))
    for exponent in (0, 1, 4, 7, -1, -2, -0.5, -3, 2.0, float("inf"), 1.5 + 1j, True):
        yield Sample((make(7), exponent))
        if make.is_complex or not isinstance(exponent, complex):
            yield Sample((special_values(make), exponent), note="special values")
    yield Sample((make(), 2), note="0-d")
    yield Sample((make(0), 2), note="empty")


@samples(aten.pow.Scalar)
def _pow_of_number(make: Make) -> Iterator[Sample]:
    yield from number_with(make, 2, 2.5, 0, 1, -1.5, 1 + 2j, low=0, high=5)
    yield Sample((2, special_values(make)), note="special values")
    yield Sample((0.5, special_values(make)), note="special values")


@samples(aten.round.decimals)
def _round_decimals(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3),), {"decimals": 1})
    yield Sample((make(2, 3, low=-900, high=900),), {"decimals": -2})
    yield Sample((special_values(make),), {"decimals": 0}, "special values")
    yield Sample((make(),), {"decimals": 3}, "0-d")
    yield Sample((make(0),), {"decimals": 2}, "empty")
    yield Sample((make.tensor([0.125, 0.375, 2.675, -0.125]),), {"decimals": 2}, "halves")


@samples(aten.sigmoid_backward.default, aten.tanh_backward.default)
def _backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3, low=-1, high=1)))
    yield Sample((make(), make()), note="0-d")
    yield Sample((make(0), make(0)), note="empty")
    yield Sample((make.transposed(2, 3), make(2, 3)), note="non-contiguous")
    yield Sample((special_values(make), special_values(make).flip(0)), note="special values")
