"""Samples of ``lowering.aten.gamma``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .special import spread, unary

aten = namespace("aten")


@samples(aten.lgamma.default, aten.digamma.default)
def _log_gamma(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, 0.05, 12),))
    yield from unary(make, 0.5, 40)
    # No point within rounding of a pole, where eager loses its digits.
    yield Sample((spread(make, -7.93, -0.06),), note="reflection")
    yield Sample((make.tensor([0.0, -0.0, -1.0, -2.0, -7.0]),), note="poles")
    yield Sample((torch.logspace(-6, 4, 20).to(make.dtype),), note="magnitudes")


@samples(aten.polygamma.default)
def _polygamma(make: Make) -> Iterator[Sample]:
    for n in (0, 1, 2, 5):
        yield Sample((n, spread(make, 0.05, 20)))
    yield Sample((1, spread(make, -7.93, -0.06)), note="reflection")
    yield Sample((3, spread(make, -7.93, -0.06)), note="negative")
    yield Sample((2, make(0, 3)), note="empty")
    yield Sample((2, make(low=1, high=9)), note="0-d")
    yield Sample((4, make.transposed(3, 4, low=1, high=9)), note="non-contiguous")


@samples(
    aten.special_zeta.default,
    gradient=False,
    reason="PyTorch has no derivative in self",
)
def _zeta(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5, low=1, high=9), make(5, low=0.1, high=20)), note="broadcast")
    yield Sample(
        (make.tensor([1.0, 0.5, 2.0, 2.5, 3.0, 4.0]), make.tensor([2.0, 2.0, 0.0, -1.5, -1.5, -4.0])),
        note="edges",
    )
    yield Sample(
        (make.tensor([2.0, 3.0, 5.0, 6.0]), make.tensor([-0.5, -7.25, -20.75, -3.5])), note="negative q"
    )
    yield Sample((make(0, 3), make(1, 3)), note="empty")
    yield Sample((make(low=1, high=9), make(2, 2, low=1, high=9)), note="0-d")


@samples(aten.special_zeta.self_scalar, gradient=False, reason="as special_zeta")
def _zeta_of_scalar(make: Make) -> Iterator[Sample]:
    yield Sample((2.5, make(3, 5, low=0.1, high=20)))
    yield Sample((3, make(low=1, high=9)), note="0-d")
    yield Sample((2, make(0)), note="empty")


@samples(aten.special_zeta.other_scalar, gradient=False, reason="as special_zeta")
def _zeta_at_scalar(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5, low=1, high=9), 1.5))
    yield Sample((make(low=1, high=9), 2), note="0-d")
    yield Sample((make(0), 1), note="empty")


@samples(
    aten.igamma.default,
    aten.igammac.default,
    gradient=False,
    reason="PyTorch has no derivative in self",
)
def _incomplete_gamma(make: Make) -> Iterator[Sample]:
    yield Sample((make(6, 1, low=0.1, high=9), make(7, low=0.1, high=20)), note="broadcast")
    ends = make.tensor([0.0, 0.5, 1.0, 3.0, float("inf"), -1.0, float("nan")])
    yield Sample((ends[:, None], ends), note="special values")
    yield Sample((make(6, low=30, high=150), make(6, 1, low=30, high=150)), note="large")
    yield Sample((make(6, low=300, high=2000), make(6, 1, low=300, high=2000)), note="very large")
    yield Sample((make(6, 1, low=0.01, high=1), make(6, low=0.01, high=1.2)), note="small")
    yield Sample((make(0, 3, low=1, high=2), make(1, 3, low=1, high=2)), note="empty")
    yield Sample((make(low=1, high=2), make(low=1, high=2)), note="0-d")
    yield Sample((make.transposed(3, 4, low=1, high=9), make(3, 4, low=1, high=9)), note="non-contiguous")
