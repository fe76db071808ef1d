"""Samples of ``lowering.aten.matmul``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


def scales(make: Make, beta: float, alpha: float) -> dict[str, Any]:
    """Return ``beta`` and ``alpha`` as numbers that the dtype accepts."""
    if make.is_float or make.is_complex:
        return {"beta": beta, "alpha": alpha}
    return {"beta": int(beta), "alpha": int(alpha)}


@samples(aten.mm.default)
def _mm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), make(5, 4)))
    yield Sample((make.transposed(3, 5), make.transposed(5, 4)), note="non-contiguous")
    yield Sample((make(3, 0), make(0, 4)), note="empty inner dimension")
    yield Sample((make(1, 33), make(33, 1)), note="long row times column")
    yield Sample((make(0, 3), make(3, 2)), note="no rows")
    yield Sample((make(1, 1), make(1, 1)), note="size 1")
    yield Sample((make(7, 7), make(7, 7).expand(7, 7)), note="square")


@samples(aten.bmm.default)
def _bmm(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 5), make(2, 5, 4)))
    yield Sample((make.transposed(2, 3, 5), make(2, 4, 5).mT), note="non-contiguous")
    yield Sample((make(2, 3, 0), make(2, 0, 4)), note="empty inner dimension")
    yield Sample((make(1, 1, 9), make(1, 9, 1)), note="size 1")
    yield Sample((make(0, 3, 2), make(0, 2, 3)), note="no batch")


@samples(aten.mv.default)
def _mv(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), make(5)))
    yield Sample((make.transposed(3, 5), make(5, noncontiguous=True)), note="non-contiguous")
    yield Sample((make(3, 0), make(0)), note="empty inner dimension")
    yield Sample((make(0, 3), make(3)), note="no rows")


@samples(aten.dot.default, aten.vdot.default)
def _dot(make: Make) -> Iterator[Sample]:
    yield Sample((make(6), make(6)))
    yield Sample((make(5, noncontiguous=True), make(5)), note="non-contiguous")
    yield Sample((make(0), make(0)), note="empty")
    yield Sample((make(1), make(1)), note="size 1")


@samples(aten.matmul.default)
def _matmul(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 5), make(5, 4)), note="batch on the left")
    yield Sample((make(2, 1, 3, 5), make(4, 5, 2)), note="broadcast batches")
    yield Sample((make(3, 5), make(2, 5, 4)), note="batch on the right")
    yield Sample((make(5), make(5)), note="vectors")
    yield Sample((make(5), make(2, 5, 4)), note="row times batch")
    yield Sample((make(2, 3, 5), make(5)), note="batch times column")
    yield Sample((make(5), make(5, 3)), note="row times matrix")
    yield Sample((make(3, 5), make(5)), note="matrix times column")
    yield Sample((make(3, 5), make(5, 2)), note="matrices")
    yield Sample((make(2, 3, 0), make(0, 4)), note="empty inner dimension")
    yield Sample((make(0, 3, 2), make(1, 2, 3)), note="no batch")


@samples(aten.linear.default)
def _linear(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 5), make(4, 5), make(4)))
    yield Sample((make(2, 3, 5), make(4, 5)), note="batch, no bias")
    yield Sample((make(5), make(4, 5), make(4)), note="vector")
    yield Sample((make(2, 3, 5), make(5)), note="1-d weight")
    yield Sample((make(0, 5), make(4, 5), make(4)), note="empty batch")
    yield Sample((make(2, 3, 5), make(1, 5), make(1)), note="one feature")


def _times_nothing(make: Make) -> dict[str, Any]:
    """Return scales for a product without elements: even an infinite scale adds nothing."""
    return scales(make, 2.0, math.inf if make.is_float else 3.0)


@samples(aten.addmm.default)
def _addmm(make: Make) -> Iterator[Sample]:
    yield Sample((make(4), make(3, 5), make(5, 4)))
    yield Sample((make(3, 4), make(3, 5), make(5, 4)), scales(make, 0.5, -2.25))
    yield Sample((make.edges()[-1], make(3, 5), make(5, 4)), {"beta": 0}, note="NaN does not count")
    yield Sample((make(3, 4), make(3, 0), make(0, 4)), _times_nothing(make), note="empty inner dimension")
    yield Sample((make(3, 1), make(3, 5), make.transposed(5, 4)), scales(make, 3.0, 0.0), note="alpha 0")
    yield Sample((make(), make(3, 5), make(5, 4)), note="0-d")


@samples(aten.baddbmm.default)
def _baddbmm(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 4), make(2, 3, 5), make(2, 5, 4)))
    yield Sample((make(3, 1), make(2, 3, 5), make(2, 5, 4)), scales(make, 0.5, -2.25))
    yield Sample((make.edges()[-1].expand(2, 3, 4), make(2, 3, 5), make(2, 5, 4)), {"beta": 0})
    yield Sample((make(2, 3, 4), make(2, 3, 0), make(2, 0, 4)), _times_nothing(make), note="empty sums")


@samples(aten.addbmm.default)
def _addbmm(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make(2, 3, 5), make(2, 5, 4)))
    yield Sample((make(4), make(2, 3, 5), make(2, 5, 4)), scales(make, 0.5, -2.25))
    yield Sample((make.edges()[-1].expand(3, 4), make(2, 3, 5), make(2, 5, 4)), {"beta": 0})
    yield Sample((make(3, 4), make(0, 3, 5), make(0, 5, 4)), _times_nothing(make), note="no batch")


@samples(aten.addmv.default)
def _addmv(make: Make) -> Iterator[Sample]:
    yield Sample((make(3), make(3, 5), make(5)))
    yield Sample((make(1), make.transposed(3, 5), make(5)), scales(make, 0.5, -2.25))
    yield Sample((make.edges()[-1].expand(3), make(3, 5), make(5)), {"beta": 0})
    yield Sample((make(3), make(3, 0), make(0)), _times_nothing(make), note="empty inner dimension")


@samples(aten.addr.default)
def _addr(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make(3), make(4)))
    factors = {"beta": True, "alpha": False} if make.dtype is torch.bool else scales(make, 0.5, -2.25)
    yield Sample((make(4), make(3), make(4)), factors)
    yield Sample((make.edges()[-1].expand(3, 4), make(3), make(4)), {"beta": 0})
    yield Sample((make(0, 4), make(0), make(4)), note="empty")


@samples(aten._trilinear.default)
def _trilinear(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(5, 3, 4), make(2, 4), [1, 3], [0], [1, 2], [2, 3]), note="bilinear layer")
    yield Sample((make(2, 3), make(3, 4), make(4), [2], [0], [0, 1], []), note="no sum")
    yield Sample((make(3), make(3, 2), make(3, 2), [1], [], [], [0, 1]), note="sum of all")
    yield Sample((make(2, 3), make(4), make(2), [2], [0, 1], [1, 2], [1]), note="axis of one operand summed")
    yield Sample((make(2, 0), make(5, 0, 4), make(2, 4), [1, 3], [0], [1, 2], [2, 3]), note="empty sum")
