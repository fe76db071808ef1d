"""Samples of ``lowering.aten.gathering``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), [torch.tensor([0, -1, 2, 2])]), note="negative and repeated")
    yield Sample((make(2, 3, 4), [None, torch.tensor([[0], [2]]), torch.tensor([1, -4])]), note="broadcast")
    yield Sample((make(2, 3, 4), [torch.tensor([1, 0]), None, torch.tensor([3, 0])]), note="not neighbours")
    yield Sample((make(4, 3), [torch.empty(0, dtype=torch.int64)]), note="empty index")
    yield Sample((make(2, 3), [torch.tensor(1), torch.tensor(-1)]), note="0-d indices")
    yield Sample((make(2, 3, 4), [None, None, torch.tensor([3])]))
    yield Sample((make(0, 3), [None, torch.tensor([1, 2])]), note="empty")
    yield Sample((make.transposed(3, 4), [torch.tensor([2, 0], dtype=torch.int32)]), note="non-contiguous")


@samples(aten.index_select.default)
def _index_select(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), 0, torch.tensor([0, 2, 2])))
    yield Sample((make(2, 3), -1, torch.tensor([2], dtype=torch.int32)))
    yield Sample((make(3), 0, torch.tensor(1)), note="0-d index")
    yield Sample((make(2, 3), 1, torch.empty(0, dtype=torch.int64)), note="empty index")
    yield Sample((make(), 0, torch.tensor([0])))
    yield Sample((make.transposed(3, 4), 1, torch.tensor([3, 0])), note="non-contiguous")


@samples(aten.gather.default)
def _gather(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), 1, make.indices(3, 2, high=4)))
    yield Sample((make(3, 4), 0, make.indices(5, 2, high=3)), note="index smaller along other axes")
    yield Sample((make(), 0, torch.tensor(0)))
    yield Sample((make(3, 4), 1, make.indices(3, 0, high=4)), note="empty index")
    yield Sample((make(3), 0, torch.tensor(2)), note="0-d index")
    yield Sample((make(2, 3, 2), -2, make.indices(2, 4, 2, high=3)))
    yield Sample((make.transposed(3, 4), 1, make.indices(3, 2, high=4)), note="non-contiguous")


@samples(aten.take.default)
def _take(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), torch.tensor([[0, -1], [11, 5]])))
    yield Sample((make(), torch.tensor([0, 0])))
    yield Sample((make(3), torch.tensor(1)), note="0-d index")
    yield Sample((make(3), torch.empty(0, 2, dtype=torch.int64)), note="empty index")
    yield Sample((make.transposed(3, 4), torch.tensor([1, 2])), note="non-contiguous")


@samples(aten.embedding.default)
def _embedding(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 3), make.indices(2, 4, high=5)))
    yield Sample((make(5, 3), torch.tensor([4, 1, 1], dtype=torch.int32), 1), note="padding row")
    yield Sample((make(5, 3), torch.tensor(2)), note="0-d index")
    yield Sample((make(5, 3), torch.empty(0, dtype=torch.int64)), note="empty index")
    yield Sample((make(5, 3), torch.tensor([1, 1, 0]), -1, True), note="gradient scaled by frequency")


@samples(aten.one_hot.default)
def _one_hot(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, low=0, high=5), 5))
    yield Sample((make(low=0, high=4), 4), note="0-d")
    yield Sample((make(0, low=0, high=4), 4), note="empty")
