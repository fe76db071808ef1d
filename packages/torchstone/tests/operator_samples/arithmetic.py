"""Samples of ``lowering.aten.arithmetic``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .elementwise import edge_pairs, number_with, pairs, singles, with_number

aten = namespace("aten")


@samples(aten.add.Tensor, aten.sub.Tensor, aten.rsub.Tensor)
def _scaled_pairs(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3)), {"alpha": True if make.dtype is torch.bool else 2})
    yield from pairs(make)
    yield from edge_pairs(make)


@samples(aten.add.Scalar, aten.sub.Scalar, aten.rsub.Scalar)
def _scaled_number(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 5, 3))
    yield from with_number(make, 2, 2.5, True)


@samples(aten.mul.Tensor)
def _mul(make: Make) -> Iterator[Sample]:
    yield from pairs(make)
    yield from edge_pairs(make)


@samples(aten.mul.Scalar)
def _mul_number(make: Make) -> Iterator[Sample]:
    yield from with_number(make, 3, 2.5, False)
    if make.dtype is not torch.float16:  # the result would be complex32
        yield Sample((make(2, 3), 1.5 - 2j))


@samples(aten.addcmul.default)
def _addcmul(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3), make(2, 3)), {"value": 2})
    yield Sample((make(2, 3), make(3), make(2, 1)), note="broadcast")
    yield Sample((make(), make(), make()), note="0-d")
    yield Sample((make(0, 3), make(1, 3), make(3)), note="empty")
    yield Sample((make(2, 3), make.transposed(2, 3), make(2, 3)), {"value": 0.5}, note="non-contiguous")
    yield Sample((make(1), make(4), make(1)), {"value": 0})


@samples(aten.addcdiv.default)
def _addcdiv(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3), make(2, 3, nonzero=True)), {"value": 2})
    yield Sample((make(2, 3), make(3), make(2, 1, nonzero=True)), note="broadcast")
    yield Sample((make(), make(), make(nonzero=True)), {"value": -0.5}, note="0-d")
    yield Sample((make(0, 3), make(1, 3), make(3)), note="empty")
    yield Sample((make(4), make(1), make.tensor([0, 1, -2, 3])), note="division by zero")


@samples(aten.lerp.Scalar)
def _lerp_number(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3), 0.25))
    yield Sample((make(2, 3), make(3), 0.75), note="broadcast")
    yield Sample((make(), make(), -2.0), note="0-d, beyond the start")
    yield Sample((make(0), make(1), 0.5), note="empty")
    yield Sample((make(3), make(3), 1.0))


@samples(aten.lerp.Tensor)
def _lerp(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3), make(2, 3, low=-1, high=2)))
    yield Sample((make(2, 3), make(3), make(2, 1, low=0, high=1)), note="broadcast")
    yield Sample((make(), make(), make()), note="0-d")
    yield Sample((make(0, 3), make(1, 3), make(3)), note="empty")
    yield Sample((make.transposed(2, 3), make(2, 3), make.tensor([0.0, 0.5, 1.0])), note="non-contiguous")


def _quotients(make: Make) -> Iterator[Sample]:
    yield from islice(pairs(make, nonzero=True), 3)
    yield Sample((make.tensor([7, -7, 7, -7, 6, 0]), make.tensor([2, 2, -2, -2, 3, 5])), note="signs")
    yield from islice(pairs(make, nonzero=True), 3, None)


@samples(aten.div.Tensor, aten.floor_divide.default)
def _divisions(make: Make) -> Iterator[Sample]:
    yield from _quotients(make)
    # eager's own kernels disagree on which infinity a complex number over zero is
    yield from edge_pairs(make, zeros=False, gradient=False)


@samples(aten.remainder.Tensor, aten.fmod.Tensor)
def _remainders(make: Make) -> Iterator[Sample]:
    yield from _quotients(make)
    for sample in edge_pairs(make, gradient=False):
        dividend, divisor = sample.args
        if make.is_float:  # eager's vectorized kernels return NaN if the quotient is huge
            dividend = torch.where(dividend.isfinite() & (dividend.abs() > 1e4), 7.5, dividend)
            divisor = torch.where((divisor != 0) & (divisor.abs() < 1e-4), 0.75, divisor)
        yield Sample((dividend, divisor), note=sample.note, gradient=False)


@samples(aten.div.Scalar, aten.floor_divide.Scalar, aten.remainder.Scalar, aten.fmod.Scalar)
def _quotients_by_number(make: Make) -> Iterator[Sample]:
    yield from with_number(make, 3, -2.5, True)


@samples(aten.remainder.Scalar_Tensor)
def _remainder_of_number(make: Make) -> Iterator[Sample]:
    yield from number_with(make, 7, -7.5, nonzero=True)


@samples(aten.div.Tensor_mode)
def _rounded_quotients(make: Make) -> Iterator[Sample]:
    signs = make.tensor([7, -7, 7, -7, 6, 0]), make.tensor([2, 2, -2, -2, 3, 5])
    for mode in ("floor", "trunc", None):
        yield Sample(signs, {"rounding_mode": mode})
    for mode in ("floor", "trunc"):
        for sample in [*pairs(make, nonzero=True), *edge_pairs(make, zeros=False, gradient=False)]:
            yield Sample(sample.args, {"rounding_mode": mode}, sample.note, sample.gradient)


@samples(aten.div.Scalar_mode)
def _rounded_quotients_by_number(make: Make) -> Iterator[Sample]:
    for mode in ("floor", "trunc", None):
        for sample in with_number(make, 3, -2.5):
            yield Sample(sample.args, {"rounding_mode": mode}, sample.note)
    if make.dtype in (torch.float32, torch.float64):
        multiples = torch.arange(-120, 120).to(make.dtype)
        for divisor in (7, 49.0):
            yield Sample((multiples, divisor), {"rounding_mode": "trunc"}, "multiples", gradient=False)


@samples(aten.reciprocal.default, aten.neg.default, aten.abs.default, aten.sign.default, aten.sgn.default)
def _unary(make: Make) -> Iterator[Sample]:
    yield from singles(make)


@samples(
    aten.maximum.default, aten.minimum.default, aten.fmax.default, aten.fmin.default, aten.heaviside.default
)
def _larger(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make)
    yield from pairs(make)


@samples(aten.hypot.default)
def _hypot(make: Make) -> Iterator[Sample]:
    yield from edge_pairs(make, gradient=False)
    yield from pairs(make)
