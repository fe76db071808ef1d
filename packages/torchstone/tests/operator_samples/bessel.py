"""Samples of ``lowering.aten.bessel``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .special import spread, unary

aten = namespace("aten")


@samples(aten.i0.default, aten.special_i0e.default, aten.special_i1.default, aten.special_i1e.default)
def _first_kind_modified(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, -10, 10),))
    yield from unary(make, -20, 20)


@samples(
    aten.special_modified_bessel_i0.default,
    aten.special_modified_bessel_i1.default,
    aten.special_modified_bessel_k0.default,
    aten.special_modified_bessel_k1.default,
    aten.special_scaled_modified_bessel_k0.default,
    aten.special_scaled_modified_bessel_k1.default,
    aten.special_bessel_j0.default,
    aten.special_bessel_j1.default,
    aten.special_bessel_y0.default,
    aten.special_bessel_y1.default,
    aten.special_spherical_bessel_j0.default,
    aten.special_airy_ai.default,
    gradient=False,
)
def _bessel(make: Make) -> Iterator[Sample]:
    yield Sample((spread(make, 0, 10),))
    yield Sample((spread(make, -10, 0),))
    yield from unary(make, -20, 20)
    yield Sample((torch.logspace(-6, 2, 20).to(make.dtype),), note="magnitudes")
