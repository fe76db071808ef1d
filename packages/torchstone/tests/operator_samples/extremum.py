"""Samples of ``lowering.aten.extremum``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def with_ties(make: Make) -> torch.Tensor:
    """Rows with repeated extremes (and, for floats, infinities and NaN)."""
    rows = [[1, 3, 3, 0], [2, 2, 2, 2], [0, 1, 0, 1]]
    if make.is_float:
        inf, nan = float("inf"), float("nan")
        return make.tensor([*rows, [1.0, nan, 3.0, nan], [-inf, -inf, -inf, -inf], [inf, 1.0, inf, -inf]])
    return make.tensor(rows)


@samples(aten.max.default, aten.min.default)
def _whole(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4),))
    yield Sample((with_ties(make),), note="ties, special values")
    yield Sample((make(),), note="0-d")
    yield Sample((make.transposed(3, 4),), note="non-contiguous")
    yield Sample((make(1, 1),), note="size 1")


@samples(aten.amax.default, aten.amin.default)
def _dims(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4, 2), [1]))
    yield Sample((with_ties(make), [1], True), note="ties, special values")
    yield Sample((make(3, 4),), note="all")
    yield Sample((make(0, 3), [1]), note="empty result")
    yield Sample((make(), [0]), note="0-d")
    yield Sample((make.transposed(3, 4), [0, 1]), note="non-contiguous")


@samples(aten.aminmax.default)
def _both(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4),))
    yield Sample((with_ties(make),), {"dim": 1, "keepdim": True}, note="ties, special values")
    yield Sample((make(0, 3),), {"dim": 1}, note="empty result")
    yield Sample((make(),), {"dim": 0}, note="0-d")
    yield Sample((make.transposed(3, 4),), {"dim": -2}, note="non-contiguous")


@samples(aten.max.dim, aten.min.dim)
def _with_index(make: Make) -> Iterator[Sample]:
    yield Sample((with_ties(make), 1), note="ties, special values")
    yield Sample((make(3, 4, 2), -2, True), note="keepdim")
    yield Sample((make(0, 3), 1), note="empty result")
    yield Sample((make(), 0), note="0-d")
    yield Sample((make.transposed(3, 4), 0), note="non-contiguous")
    yield Sample((make(1, 3), 0), note="size 1")


@samples(aten.argmax.default, aten.argmin.default, gradient=False)
def _position(make: Make) -> Iterator[Sample]:
    yield Sample((with_ties(make), 1), note="ties, special values")
    yield Sample((make(3, 4), None, True), note="all, keepdim")
    yield Sample((make(0, 3), 1), note="empty result")
    yield Sample((make(),), note="0-d")
    yield Sample((make.transposed(3, 4), 0, True), note="non-contiguous")
    yield Sample((make(1, 1), -2), note="size 1")
