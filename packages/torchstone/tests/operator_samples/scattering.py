"""Samples of ``lowering.aten.scattering``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(make: Make) -> Iterator[Sample]:
    once, twice = torch.tensor([0, -1]), torch.tensor([1, 1, 0, -2])
    mask = torch.tensor([True, False, True])
    pairs = torch.tensor([[True, False], [False, True], [True, True]])
    # The gradient of values selected by a mask is grad[mask], whose size depends on data.
    yield Sample((make(3, 2), [once], make(2, 2)))
    # Small integers: sums of float8 are then exact in any order.
    few = make.tensor([[1, 2], [2, 1], [1, 0], [0, 2]])
    yield Sample((few[:3], [twice], few, True), note="accumulate repeated")
    yield Sample((make(3, 2), [mask], make(2)), note="a mask and one value", gradient=False)
    yield Sample((make(2, 3, 4), [None, torch.tensor([[0], [2]]), torch.tensor([1, -4])], make(2, 2, 2)))
    yield Sample(
        (make(2, 3), [None, mask], make(2, 2)), note="a mask and a value for each place", gradient=False
    )
    yield Sample((make(3, 2), [mask], make(), True), note="a mask, accumulate", gradient=False)
    yield Sample((make(3, 2), [pairs], make(4)), note="a mask over two axes", gradient=False)
    yield Sample(
        (make(2, 3, 4), [torch.tensor([1, 0]), None, torch.tensor([3, 0])], make()), note="0-d value"
    )
    yield Sample((make(0, 3), [torch.empty(0, dtype=torch.int64)], make(0, 3)), note="empty")
    yield Sample((make(3, 2), [torch.empty(0, dtype=torch.int64)], make()), note="empty index")
    yield Sample((make.transposed(3, 4), [torch.tensor(1), torch.tensor(2)], make()), note="non-contiguous")


@samples(aten.scatter.src)
def _scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), 1, torch.tensor([[0, 3], [2, 1], [1, 0]]), make(3, 2)))
    yield Sample((make(3, 4), 0, torch.tensor([[2, 0], [0, 1]]), make(3, 3)), note="a corner only")
    yield Sample((make(), 0, torch.tensor(0), make()))
    yield Sample((make(3, 4), 1, make.indices(3, 0, high=4), make(3, 4)), note="empty index")
    yield Sample((make(3), 0, torch.tensor(2), make()), note="0-d index")
    yield Sample((make.transposed(3, 4), -1, torch.tensor([[1, 0]]), make(1, 2)), note="non-contiguous")


@samples(aten.scatter.value)
def _scatter_value(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), 1, torch.tensor([[0, 3], [2, 1], [1, 0]]), 2))
    yield Sample((make(3, 4), 0, torch.tensor([[2, 2], [0, 1]]), 1), note="repeated, a corner only")
    yield Sample((make(), 0, torch.tensor(0), 3))
    yield Sample((make(3, 4), 1, make.indices(3, 0, high=4), 1), note="empty index")


@samples(aten.scatter_add.default)
def _scatter_add(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), 1, torch.tensor([[0, 0], [2, 1], [3, 3]]), make(3, 2)), note="repeated")
    yield Sample((make(3, 4), 0, torch.tensor([[2, 0], [2, 1]]), make(3, 3)), note="a corner only")
    yield Sample((make(), 0, torch.tensor(0), make()))
    yield Sample((make(3, 4), 1, make.indices(3, 0, high=4), make(3, 4)), note="empty index")
    yield Sample((make(3), 0, torch.tensor([1, 1, 1, 0]), make(4)))


@samples(
    aten.scatter.reduce,
    gradient=False,
    reason="PyTorch's derivative is wrong where several elements meet; scatter_reduce has the right one",
)
def _scatter_with_reduce(make: Make) -> Iterator[Sample]:
    index = torch.tensor([[0, 0], [2, 1], [3, 3]])
    for reduce in ("add", "multiply"):
        yield Sample((make(3, 4, low=-3, high=3), 1, index, make(3, 2, low=-3, high=3)), {"reduce": reduce})
        yield Sample((make(), 0, torch.tensor(0), make()), {"reduce": reduce})
    yield Sample(
        (make(3, 4), 0, make.indices(0, 4, high=3), make(3, 4)), {"reduce": "add"}, note="empty index"
    )
    yield Sample(
        (make(3, 4), 0, torch.tensor([[2, 0]]), make(2, 3)), {"reduce": "multiply"}, note="a corner only"
    )


@samples(
    aten.scatter.value_reduce, gradient=False, reason="PyTorch has no derivative of it for repeated indices"
)
def _scatter_value_with_reduce(make: Make) -> Iterator[Sample]:
    for reduce in ("add", "multiply"):
        yield Sample((make(3, 4), 1, torch.tensor([[0, 0], [2, 1], [3, 3]]), 2), {"reduce": reduce})
        yield Sample((make(), 0, torch.tensor(0), 3), {"reduce": reduce})


@samples(aten.scatter_reduce.two)
def _scatter_reduce(make: Make) -> Iterator[Sample]:
    index = torch.tensor([[0, 0], [2, 1], [3, 3]])
    for reduce in ("mean", "amax", "prod", "sum", "amin"):
        for include_self in (False, True):
            yield Sample(
                (make(3, 4, low=-4, high=4), 1, index, make(3, 2, low=-4, high=4), reduce),
                {"include_self": include_self},
            )
    yield Sample((make(3, 4), 0, torch.tensor([[2, 0], [2, 1]]), make(3, 3), "mean"), note="a corner only")
    yield Sample((make(), 0, torch.tensor(0), make(), "amax"))
    yield Sample((make(3, 4), 1, make.indices(3, 0, high=4), make(3, 4), "sum"), note="empty index")
    edges = make.edges()
    everything = torch.zeros(len(edges), dtype=torch.int64)
    # The gradient divides by zero where the result is NaN, and XLA computes 0 · inf as 0 if the 0 was a bool.
    yield Sample((edges, 0, everything, edges, "amin"), note="special values", gradient=False)
