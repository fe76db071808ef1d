"""Samples of ``lowering.aten.contraction``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.einsum.default)
def _einsum(make: Make) -> Iterator[Sample]:
    yield Sample(("bij,bjk->bik", [make(2, 3, 4), make(2, 4, 5)]), note="batched product")
    chain = [make(2, 3, low=-3, high=3), make(3, 4, low=-3, high=3), make(4, 2, low=-3, high=3)]
    yield Sample(("ij,jk,kl->il", chain), {"path": [1, 2, 0, 1]}, note="a chain in the given order")
    yield Sample(("ii->i", [make(3, 3)]), note="diagonal")
    yield Sample(("...i,i", [make(2, 3, 4), make(4)]), note="implicit result, ellipsis")
    yield Sample(("ij->ji", [make.transposed(3, 4)]), note="non-contiguous")
    yield Sample(("i,j->ij", [make(0), make(3)]), note="empty")


@samples(aten.tensordot.default)
def _tensordot(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 4), make(4, 3, 5), [1, -1], [1, 0]))
    yield Sample((make(2), make(3), [], []), note="outer product")
    yield Sample((make.transposed(3, 4), make(4), [1], [0]), note="non-contiguous")
