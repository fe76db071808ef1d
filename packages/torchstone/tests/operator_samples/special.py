"""Samples of ``lowering.aten.special``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def unary(make: Make, low: float, high: float) -> Iterator[Sample]:
    """Yield samples for any elementwise function of one real argument, drawn from [low, high)."""
    yield Sample((make(3, 5, low=low, high=high),))
    yield Sample((make.edges(),), note="special values")
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make(low=low, high=high),), note="0-d")
    yield Sample((make.transposed(3, 4, low=low, high=high),), note="non-contiguous")
    yield Sample((make(1, 1, low=low, high=high),), note="size 1")


def spread(make: Make, low: float, high: float) -> torch.Tensor:
    """Evenly spaced points, both ends included."""
    return torch.linspace(low, high, 41, dtype=torch.float64).to(make.dtype)


@samples(aten.erf.default, aten.erfc.default, aten.special_ndtr.default, aten.special_log_ndtr.default)
def _error_functions(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, -4, 4),))
    yield from unary(make, -5, 5)
    yield Sample((spread(make, 4, 9),), note="tail")


@samples(aten.special_erfcx.default)
def _erfcx(make: Make) -> Iterator[Sample]:
    # Without the largest floats: their results are subnormal, which XLA's CPU code flushes to zero.
    yield Sample((spread(make, -4, 9),))
    yield Sample((make.tensor([0.0, -0.0, 60.0, 1e8, -30.0, float("inf"), float("-inf"), float("nan")]),))
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make(low=-5, high=5),), note="0-d")
    yield Sample((make.transposed(3, 4, low=-5, high=5),), note="non-contiguous")


@samples(aten.erfinv.default)
def _erfinv(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, -0.99, 0.99),))
    yield from unary(make, -1, 1)
    yield Sample(((1 - torch.logspace(-7, -1, 20)).to(make.dtype),), note="near 1")
    yield Sample((make.tensor([-1.0, 1.0, 1.5, -2.0]),), note="the ends and beyond")


@samples(aten.special_ndtri.default)
def _ndtri(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, 0.01, 0.99),))
    yield from unary(make, 0, 1)
    yield Sample((torch.logspace(-30, -2, 20).to(make.dtype),), note="far tail")
    yield Sample((make.tensor([0.0, 1.0, 1.5, -0.5]),), note="the ends and beyond")
