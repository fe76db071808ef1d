"""Samples of ``lowering.aten.data_dependent``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.nonzero_static.default, gradient=False)
def _nonzero_static(make: Make) -> Iterator[Sample]:
    sparse = make.tensor([[0, 1, 0], [2, 0, 3]])
    yield Sample((sparse,), {"size": 5})
    yield Sample((sparse,), {"size": 2, "fill_value": 7}, note="more than fit")
    yield Sample((make.tensor(1),), {"size": 2}, note="0-d")
    yield Sample((make(0, 3),), {"size": 2}, note="empty")
    yield Sample((sparse.t(),), {"size": 0})
    yield Sample((make.edges(),), {"size": 40}, note="special values")


@samples(aten.repeat_interleave.Tensor, gradient=False)
def _repeat_interleave(make: Make) -> Iterator[Sample]:
    yield Sample((make.tensor([2, 0, 3]),), {"output_size": 5})
    yield Sample((make.tensor([1]),), {"output_size": 1})
    yield Sample((make.tensor([0, 0]),), {"output_size": 0}, note="nothing")
    yield Sample((make(0),), {"output_size": 0}, note="empty")


@samples(torch.ops.torchstone.masked_select.default)
def _masked_select(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make.bools(3, 4), 12), note="room for all")
    yield Sample((make(3, 1), torch.tensor([True, False, True, True]), 5), note="broadcast, cut off")
