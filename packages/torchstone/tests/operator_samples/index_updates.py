"""Samples of ``lowering.aten.index_updates``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.index_add.default)
def _index_add(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), 0, torch.tensor([0, 2, 2]), make(3, 3)), note="repeated")
    yield Sample((make(2, 3), -1, torch.tensor([2, 0]), make(2, 2)), {"alpha": 2})
    yield Sample((make(), 0, torch.tensor([0]), make(1)))
    yield Sample((make(2, 3), 1, torch.empty(0, dtype=torch.int64), make(2, 0)), note="empty index")
    yield Sample((make(3), 0, torch.tensor(1), make()), note="0-d index")
    yield Sample((make.transposed(3, 4), 1, torch.tensor([3, 3], dtype=torch.int32), make(3, 2)))


@samples(aten.index_copy.default)
def _index_copy(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), 0, torch.tensor([0, 2]), make(2, 3)))
    yield Sample((make(2, 3), -1, torch.tensor([2, 0]), make(2, 2)))
    yield Sample((make(), 0, torch.tensor([0]), make(1)))
    yield Sample((make(2, 3), 1, torch.empty(0, dtype=torch.int64), make(2, 0)), note="empty index")
    yield Sample((make(3), 0, torch.tensor(1), make()), note="0-d index")


@samples(aten.index_fill.int_Scalar)
def _index_fill(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), 0, torch.tensor([0, -1, 0]), 2), note="negative and repeated")
    yield Sample((make(2, 3), -1, torch.tensor([2]), 1))
    yield Sample((make(), 0, torch.tensor([0]), 1))
    yield Sample((make(2, 3), 1, torch.empty(0, dtype=torch.int64), 1), note="empty index")
    yield Sample((make(3), 0, torch.tensor(1), 0), note="0-d index")


@samples(
    aten.index_fill.int_Tensor,
    gradient=False,
    reason="its derivative looks for unique positions, whose number depends on data",
)
def _index_fill_tensor(make: Make) -> Iterator[Sample]:
    yield Sample((make(4, 3), 0, torch.tensor([0, 3, 0]), make()))
    yield Sample((make(2, 3), -1, torch.tensor([2]), torch.tensor(1)), note="another dtype")
    yield Sample((make(), 0, torch.tensor([0]), make()))
    yield Sample((make(0, 3), 1, torch.tensor([1]), make()), note="empty")


@samples(aten.index_reduce.default)
def _index_reduce(make: Make) -> Iterator[Sample]:
    index = torch.tensor([0, 2, 2])
    for reduce in ("mean", "amax", "prod", "amin"):
        for include_self in (False, True):
            yield Sample(
                (make(4, 3, low=-4, high=4), 0, index, make(3, 3, low=-4, high=4), reduce),
                {"include_self": include_self},
            )
    yield Sample((make(), 0, torch.tensor([0]), make(1), "mean"))
    yield Sample((make(2, 3), 1, torch.empty(0, dtype=torch.int64), make(2, 0), "amax"), note="empty index")


@samples(aten.put.default)
def _put(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), torch.tensor([[0, -1], [11 - 4, 5]]), make(4)))
    few = make.tensor([1, 2, 0])  # small integers, so that sums of float8 are exact in any order
    yield Sample((few, torch.tensor([1, 1, 0]), few, True), note="accumulate repeated")
    yield Sample((make(), torch.tensor(0), make()))
    yield Sample((make(3), torch.empty(0, dtype=torch.int64), make(0)), note="empty index")
    yield Sample((make.transposed(3, 4), torch.tensor([1, 2]), make(2)), note="non-contiguous")


@samples(aten.embedding_dense_backward.default, gradient=False)
def _embedding_dense_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 4, 3), make.indices(2, 4, high=3), 5, -1, False), note="repeated")
    yield Sample((make(4, 3), torch.tensor([4, 1, 1, 0], dtype=torch.int32), 5, 1, False), note="padding row")
    yield Sample((make(5, 3), torch.tensor([1, 1, 0, 1, 4]), 6, 4, True), note="scaled by frequency")
    yield Sample((make(0, 3), torch.empty(0, dtype=torch.int64), 5, -1, False), note="empty")
    yield Sample((make(3), torch.tensor(2), 5, -1, False), note="0-d index")


@samples(aten.embedding_renorm.default, gradient=False)
def _embedding_renorm(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 3), torch.tensor([4, 1, 1]), 2.0, 2.0))
    yield Sample((make(5, 3), torch.tensor([[0, 1]]), 1.0, 1.0))
    yield Sample((make(5, 3), torch.tensor([2]), 1.5, float("inf")))
    yield Sample((make(5, 3), torch.empty(0, dtype=torch.int64), 1.0, 2.0), note="empty index")
    yield Sample(
        (make(4, 3, low=-0.1, high=0.1), torch.tensor([0, 3]), 2.0, 3.0), note="short enough already"
    )
