"""Samples of ``lowering.aten.slicing``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.slice.Tensor, aten.slice_copy.Tensor)
def _slice(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 3), 0, 1, 4))
    yield Sample((make(5, 7), -1, -6, 9223372036854775807, 3), note="negative start, step")
    yield Sample((make(5, 3), 0, 3, 2), note="empty result")
    yield Sample((make(0, 3), 1, 1), note="empty")
    yield Sample((make(5),))
    yield Sample((make(5), 0, -9, -1), note="start out of range")
    yield Sample((make(5), 0, 8, 9), note="beyond the end")
    yield Sample((make.transposed(3, 4), 1, 1, None, 2), note="non-contiguous")
    yield Sample((make(1), 0, None, 1))


@samples(aten.select.int, aten.select_copy.int)
def _select(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 1, 2))
    yield Sample((make(2, 3), 0, -1))
    yield Sample((make(3), -1, 0), note="to 0-d")
    yield Sample((make(2, 0), 0, 1), note="empty")
    yield Sample((make.transposed(3, 4), 0, 1), note="non-contiguous")


@samples(aten.narrow_copy.default)
def _narrow_copy(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 3), 0, 1, 3))
    yield Sample((make(5, 3), -1, -2, 2))
    yield Sample((make(5), 0, 5, 0), note="empty result")
    yield Sample((make(0, 3), 1, 0, 1), note="empty")


@samples(aten.split.Tensor, aten.split_copy.Tensor, aten.unsafe_split.Tensor)
def _split(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 2), 2))
    yield Sample((make(2, 4), 2, -1))
    yield Sample((make(2), 5), note="one part")
    yield Sample((make(0, 2), 2), note="empty")
    yield Sample((make.transposed(3, 4), 1), note="non-contiguous")


@samples(
    aten.split_with_sizes.default, aten.split_with_sizes_copy.default, aten.unsafe_split_with_sizes.default
)
def _split_with_sizes(make: Make) -> Iterator[Sample]:
    yield Sample((make(5, 2), [1, 4]))
    yield Sample((make(2, 4), [3, 0, 1], -1), note="an empty part")
    yield Sample((make(2), [2]), note="one part")
    yield Sample((make(0, 2), [0]), note="empty")


@samples(aten.unbind.int, aten.unbind_copy.int)
def _unbind(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 2),))
    yield Sample((make(2, 3), -1))
    yield Sample((make(1),), note="to 0-d")
    yield Sample((make(2, 0),), note="empty")
    yield Sample((make.transposed(3, 4), 1), note="non-contiguous")


@samples(aten.diagonal.default, aten.diagonal_copy.default)
def _diagonal(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4),))
    yield Sample((make(2, 4, 3), 1, 1, 2), note="batched, above")
    yield Sample((make(4, 2, 3), -1, -1, 0), note="axes out of order, below")
    yield Sample((make(3, 4), 4), note="empty result")
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make(1, 1),))
    yield Sample((make.transposed(3, 4), 1), note="non-contiguous")


@samples(aten.unfold.default, aten.unfold_copy.default)
def _unfold(make: Make) -> Iterator[Sample]:
    yield Sample((make(7, 2), 0, 3, 2))
    yield Sample((make(2, 6), -1, 2, 1), note="overlap")
    yield Sample((make(5), 0, 5, 1), note="one window")
    yield Sample((make(2, 0), 0, 1, 1), note="empty")
    yield Sample((make(), 0, 1, 1))
    yield Sample((make(5), 0, 1, 3), note="gaps")
