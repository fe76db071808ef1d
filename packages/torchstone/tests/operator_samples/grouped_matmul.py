"""Samples of ``lowering.aten.grouped_matmul``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten._grouped_mm.default)
def _grouped_mm(make: Make) -> Iterator[Sample]:
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    yield Sample((make(8, 16), make(3, 16, 8), ends), note="groups of rows, one empty")
    yield Sample((make(3, 8, 16), make(16, 8), ends), note="groups of columns")
    yield Sample((make(8, 8), make(8, 16), ends), note="groups of inner elements")
    yield Sample((make(2, 8, 16), make(2, 16, 8)), note="one product for each matrix")
    infinite = make(8, 16)
    infinite[4] = float("inf")
    yield Sample((infinite, make(3, 16, 8), ends), note="infinities stay in their group")
