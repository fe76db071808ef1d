"""Samples of ``lowering.aten.sorting``.

Where PyTorch leaves the index of equal elements open, elements are distinct.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def distinct(make: Make, *shape: int) -> torch.Tensor:
    """Different numbers in random order."""
    count = torch.Size(shape).numel()
    low = 0 if make.dtype in (torch.uint8, torch.bool) else -count // 2
    return (torch.randperm(count) + low).reshape(shape).to(make.dtype)


def with_nan(make: Make) -> torch.Tensor:
    values = [3.0, float("nan"), -1.0, float("inf"), float("nan"), float("-inf"), 0.5]
    return torch.tensor(values).to(make.dtype) if make.is_float else make.edges()


@samples(aten.sort.default)
def _sort(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5, low=0, high=4),), note="repeated elements")
    yield Sample((with_nan(make), 0, True), note="special values, descending")
    yield Sample((make(),))
    yield Sample((make(0, 3), 0), note="empty")
    yield Sample((with_nan(make),), note="special values")
    yield Sample((make.edges(), 0), note="extremes")
    yield Sample((make.transposed(3, 4), 0, True), note="non-contiguous")
    yield Sample((make(1, 3), 0), note="size 1")


@samples(aten.sort.stable)
def _sort_stable(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5, low=0, high=4),), {"stable": True}, note="repeated elements")
    yield Sample((with_nan(make),), {"stable": True, "descending": True}, note="special values")
    yield Sample((make(2, 3),), {"stable": False, "dim": 0})
    yield Sample((make(),), {"stable": None})


@samples(aten.topk.default)
def _topk(make: Make) -> Iterator[Sample]:
    yield Sample((distinct(make, 3, 5), 2))
    yield Sample((distinct(make, 5, 2), 3, 0, False), note="smallest")
    yield Sample(
        (make.edges()[:-1], 3) if not make.is_float else (make.edges()[2:], 3), note="special values"
    )
    yield Sample((make.edges()[:1], 1, 0, False, False))
    yield Sample((make(), 1), note="0-d")
    yield Sample((make(3, 0), 0), note="empty")
    yield Sample((distinct(make, 4), 0), note="none")
    yield Sample((distinct(make, 4, 3).t(), 4), note="non-contiguous, all")
    yield Sample((distinct(make, 2, 99), 3), note="few of many")
    yield Sample((distinct(make, 99, 2), 4, 0, False), note="few of many, smallest")


@samples(aten.kthvalue.default)
def _kthvalue(make: Make) -> Iterator[Sample]:
    yield Sample((distinct(make, 3, 5), 2))
    yield Sample((distinct(make, 5, 2), 5, 0, True))
    yield Sample((make(), 1), note="0-d")
    yield Sample((make(0, 3), 1), note="empty")
    yield Sample((make.edges()[-4:], 4), note="special values")


@samples(aten.median.dim, aten.nanmedian.dim)
def _median_dim(make: Make) -> Iterator[Sample]:
    yield Sample((distinct(make, 3, 5), 1))
    yield Sample((distinct(make, 4, 2), 0, True), note="even count: the lower one")
    yield Sample((make(), 0))
    yield Sample((make(0, 3), 1), note="empty")
    if make.is_float:
        yield Sample((make.tensor([[1.0, float("nan"), 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]]), 1), note="NaN")
        yield Sample((make.tensor([[float("nan")], [1.0]]), 1), note="nothing but NaN")


@samples(aten.median.default, aten.nanmedian.default)
def _median(make: Make) -> Iterator[Sample]:
    yield Sample((distinct(make, 3, 5),))
    yield Sample((distinct(make, 4, 2),), note="even count: the lower one")
    yield Sample((make(),))
    if make.is_float:
        yield Sample((make(0),), note="empty")
        yield Sample((make.tensor([1.0, float("nan"), 3.0, 2.0]),), note="NaN")
        yield Sample((make.tensor([float("nan"), float("nan")]),), note="nothing but NaN", gradient=False)


@samples(aten.mode.default)
def _mode(make: Make) -> Iterator[Sample]:
    yield Sample((make.tensor([[1, 2, 2, 3, 3, 2], [0, 1, 1, 0, 3, 4]]),))
    yield Sample((make.tensor([[1, 2], [1, 3], [0, 3]]), 0, True))
    yield Sample((make(),))
    yield Sample((make(0, 3), 1), note="empty")
    yield Sample((distinct(make, 7),), note="all equally frequent")
