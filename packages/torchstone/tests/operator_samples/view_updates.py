"""Samples of ``lowering.aten.view_updates``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.slice_scatter.default)
def _slice_scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 3), make(2, 3), 0, 1, 3))
    yield Sample((make(2, 7), make(2, 3), -1, -6, 9223372036854775807, 2), note="negative start, step")
    yield Sample((make(4), make(4)))
    yield Sample((make(0, 3), make(0, 1), 1, 1, 2), note="empty")
    yield Sample((make(5), make(0), 0, 3, 3), note="nothing replaced")
    yield Sample((make(3), make(1, dtype=torch.int8), 0, -1), note="mixed dtypes")
    yield Sample((make.transposed(3, 4), make(3, 2), 1, 1, 4, 2), note="non-contiguous")


@samples(aten.slice_backward.default, gradient=False)
def _slice_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), [5, 3], 0, 1, 3, 1))
    yield Sample((make(2, 3), [2, 7], 1, 1, 9223372036854775807, 2), note="step")
    yield Sample((make(0, 3), [5, 3], 0, 3, 3, 1), note="empty")
    yield Sample((make(4), [4], 0, 0, 4, 1))


@samples(aten.select_scatter.default)
def _select_scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), make(2), 1, 2))
    yield Sample((make(2, 3), make(3), 0, -1))
    yield Sample((make(3), make(), 0, 0), note="0-d source")
    yield Sample((make(2, 0), make(0), 0, 1), note="empty")
    yield Sample((make.transposed(3, 4), make(4), 0, 1), note="non-contiguous")


@samples(aten.select_backward.default, gradient=False)
def _select_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(2), [2, 3], 1, 2))
    yield Sample((make(3), [2, 3], 0, -1))
    yield Sample((make(), [3], 0, 0))
    yield Sample((make(0), [2, 0], 0, 1), note="empty")


@samples(aten.diagonal_scatter.default)
def _diagonal_scatter(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make(3)))
    yield Sample((make(2, 4, 3), make(2, 2), 1, 1, 2), note="batched, above")
    yield Sample((make(3, 2, 4), make(2, 3), -1, -1, 0), note="axes out of order, below")
    yield Sample((make(0, 3), make(0)), note="empty")
    yield Sample((make(3, 4), make(0), 4), note="nothing replaced")


@samples(aten.diagonal_backward.default, gradient=False)
def _diagonal_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(3), [3, 4], 0, 0, 1))
    yield Sample((make(2, 2), [2, 4, 3], 1, 1, 2), note="batched, above")
    yield Sample((make(0), [3, 4], 4, 0, 1), note="empty")
    yield Sample((make(1), [1, 1], 0, 0, 1))


@samples(aten.unfold_backward.default, gradient=False)
def _unfold_backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 2, 3), [7, 2], 0, 3, 2))
    yield Sample((make(2, 5, 2), [2, 6], 1, 2, 1), note="overlap")
    yield Sample((make(2, 1), [5], 0, 1, 3), note="gaps")
    yield Sample((make(0, 2, 3), [2, 2], 0, 3, 1), note="no windows")
    yield Sample((make(1, 4, 3), [2, 9], 1, 3, 2), note="broadcast")
