"""Samples of ``lowering.aten.packed_weights``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples
from .quantization import NOT_DIFFERENTIABLE

aten = namespace("aten")
ROWS = (16, 64, 80, 192)
"""Less than one block of the kernels, exactly one, one and a part, and three."""


@samples(aten._convert_weight_to_int4pack_for_cpu.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _pack(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.int32:
        return
    for rows in ROWS:
        yield Sample((torch.randint(16, (rows, 64), dtype=torch.int32), 1), note=f"{rows} rows")


@samples(aten._weight_int4pack_mm_for_cpu.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _int4(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    for rows in ROWS:
        packed = aten._convert_weight_to_int4pack_for_cpu(torch.randint(16, (rows, 64), dtype=torch.int32), 1)
        parameters = make(2, rows, 2, low=-0.5, high=0.5)
        yield Sample((make(5, 64, low=-1, high=1), packed, 32, parameters), note=f"{rows} rows")
