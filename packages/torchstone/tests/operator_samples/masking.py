"""Samples of ``lowering.aten.masking``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.masked_fill.Scalar)
def _masked_fill(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make.bools(2, 3), 2))
    yield Sample((make(2, 3), make.bools(3), 0), note="broadcast mask")
    yield Sample((make(3), make.bools(2, 1), 1), note="broadcast operand")
    yield Sample((make(), torch.tensor(True), 1))
    yield Sample((make(0, 3), make.bools(0, 3), 1), note="empty")
    yield Sample((make.transposed(3, 4), make.bools(3, 4), float("-inf") if make.is_float else 1))


@samples(aten.masked_fill.Tensor)
def _masked_fill_tensor(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make.bools(2, 3), make()))
    yield Sample((make(2, 3), make.bools(3), torch.tensor(1)), note="another dtype")
    yield Sample((make(), torch.tensor(True), make()))
    yield Sample((make(0, 3), make.bools(0, 3), make()), note="empty")


@samples(aten.masked_scatter.default)
def _masked_scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), torch.tensor([[True, False, True], [False, True, True]]), make(2, 2)))
    yield Sample((make(2, 3), torch.tensor([False, True, True]), make(9)), note="broadcast mask")
    yield Sample((make(), torch.tensor(True), make(1)))
    yield Sample((make(0, 3), make.bools(0, 3), make(2)), note="empty")
    yield Sample((make(3), torch.zeros(3, dtype=torch.bool), make(0)), note="empty source, nothing selected")
    yield Sample((make.transposed(3, 2), torch.ones(3, 2, dtype=torch.bool), make.transposed(2, 3)))


@samples(aten.masked_scatter_backward.default, gradient=False)
def _masked_scatter_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), torch.tensor([[True, False, True], [False, True, True]]), [2, 2]))
    yield Sample((make(2, 3), torch.tensor([[False, True, True]] * 2), [9]), note="a larger source")
    yield Sample((make(0, 3), make.bools(0, 3), [2]), note="empty")
    yield Sample((make(3), torch.zeros(3, dtype=torch.bool), [2]), note="nothing selected")
