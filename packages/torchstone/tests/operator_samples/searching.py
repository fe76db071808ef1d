"""Samples of ``lowering.aten.searching``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def ascending(make: Make, *shape: int) -> torch.Tensor:
    return make(*shape, low=0, high=9).sort(-1).values


@samples(aten.searchsorted.Tensor, gradient=False)
def _searchsorted(make: Make) -> Iterator[Sample]:
    keys = ascending(make, 6)
    yield Sample((keys, make(2, 3, low=0, high=9)))
    yield Sample((ascending(make, 2, 5), make(2, 3, low=0, high=9)), {"side": "right"}, note="batched")
    yield Sample((keys, keys), {"right": True, "out_int32": True}, note="equal elements")
    yield Sample((make(0), make(2)), note="nothing to search")
    shuffled = make(2, 4)
    yield Sample((shuffled, make(2, 3)), {"sorter": shuffled.argsort(-1)}, note="sorter")
    yield Sample((keys, make()), note="0-d")
    yield Sample((keys, make.edges()), note="special values")
    yield Sample((keys, make(0, 2)), note="empty")


@samples(aten.searchsorted.Scalar, gradient=False)
def _searchsorted_scalar(make: Make) -> Iterator[Sample]:
    yield Sample((ascending(make, 6), 3))
    yield Sample((ascending(make, 6), 3.5), {"right": True})
    yield Sample((ascending(make, 6), 4), {"side": "left", "out_int32": True})
    yield Sample((make(0), 1), note="nothing to search")


@samples(aten.bucketize.Tensor, gradient=False)
def _bucketize(make: Make) -> Iterator[Sample]:
    edges = ascending(make, 6)
    yield Sample((make(2, 3, low=0, high=9), edges))
    yield Sample((edges, edges), {"right": True, "out_int32": True}, note="equal elements")
    yield Sample((make(), edges))
    yield Sample((make(0, 2), edges), note="empty")
    yield Sample((make.transposed(3, 4), edges), note="non-contiguous")


@samples(aten.bucketize.Scalar, gradient=False)
def _bucketize_scalar(make: Make) -> Iterator[Sample]:
    yield Sample((3, ascending(make, 6)))
    yield Sample((3.5, ascending(make, 6)), {"right": True})
    yield Sample((1, make(0)), note="no boundaries")
