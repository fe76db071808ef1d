"""Samples of ``lowering.aten.prims``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import Make, Sample, samples


@samples(torch.ops.prims.fma.default, gradient=False)
def _fma(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2, 3), make(2, 3)))
    yield Sample((make(), make(), make()), note="0-d")
    yield Sample((make(0), make(0), make(0)), note="empty")


@samples(torch.ops.prims.where.default, gradient=False)
def _where(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), torch.randn(2, 3), torch.randn(2, 3)))
    yield Sample((make(2), torch.tensor([1, 2]), torch.tensor([3, 4])), note="integers")
    yield Sample((make(0), torch.ones(0), torch.ones(0)), note="empty")
