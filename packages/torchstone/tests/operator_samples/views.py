"""Samples of ``lowering.aten.views``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.alias.default, aten.alias_copy.default)
def _alias(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3),))
    yield Sample((make(),))
    yield Sample((make(0, 3),), note="empty")
    yield Sample((make.transposed(3, 4),), note="non-contiguous")


@samples(aten.detach.default, aten.detach_copy.default, gradient=False)
def _detach(make: Make) -> Iterator[Sample]:
    yield from _alias(make)


@samples(aten.view.default, aten.view_copy.default, aten._unsafe_view.default)
def _view(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 6), [3, 4]))
    yield Sample((make(2, 6), [-1, 2]), note="inferred size")
    yield Sample((make(), [1, 1]))
    yield Sample((make(0, 3), [3, 0, 2]), note="empty")
    yield Sample((make(1), []), note="to 0-d")
    yield Sample((make.transposed(3, 4), [3, 2, 2]), note="non-contiguous")
    yield Sample((make.edges(), [-1]), note="special values")


@samples(aten._reshape_copy.default)
def _reshape_copy(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 6), [3, 4]))
    yield Sample((make.transposed(3, 4), [2, 6]), note="non-contiguous")
    yield Sample((make(), [1]))
    yield Sample((make(0, 3), [0]))


@samples(aten._reshape_alias.default, aten._reshape_alias_copy.default)
def _reshape_alias(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 6), [3, 4], [4, 1]))
    yield Sample((make(), [1], [1]))
    yield Sample((make(0, 3), [3, 0], [1, 1]), note="empty")


@samples(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def _unsqueeze(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), 1))
    yield Sample((make(2, 3), -1))
    yield Sample((make(), 0))
    yield Sample((make(0, 3), 2), note="empty")
    yield Sample((make.transposed(3, 4), 0), note="non-contiguous")


@samples(aten.squeeze.default, aten.squeeze_copy.default)
def _squeeze(make: Make) -> Iterator[Sample]:
    yield Sample((make(1, 3, 1),))
    yield Sample((make(2, 3),))
    yield Sample((make(),))
    yield Sample((make(0, 1),), note="empty")
    yield Sample((make(1, 1),), note="to 0-d")


@samples(aten.squeeze.dim, aten.squeeze_copy.dim)
def _squeeze_dim(make: Make) -> Iterator[Sample]:
    yield Sample((make(1, 3, 1), -1))
    yield Sample((make(2, 3), 0), note="size is not 1")
    yield Sample((make(), 0))
    yield Sample((make(0, 1), 1), note="empty")


@samples(aten.squeeze.dims, aten.squeeze_copy.dims)
def _squeeze_dims(make: Make) -> Iterator[Sample]:
    yield Sample((make(1, 3, 1), [0, -1]))
    yield Sample((make(1, 3, 1), [0, 1]), note="one size is not 1")
    yield Sample((make(), [0]))
    yield Sample((make(0, 1), [1]), note="empty")
    yield Sample((make(1, 2), []), note="no dims")


@samples(aten.expand.default, aten.expand_copy.default)
def _expand(make: Make) -> Iterator[Sample]:
    yield Sample((make(1, 3), [2, 3]))
    yield Sample((make(3), [2, -1]), note="kept size")
    yield Sample((make(), [2, 2]))
    yield Sample((make(1, 3), [0, 3]), note="to empty")
    yield Sample((make.transposed(3, 1), [2, 3, 4]), note="non-contiguous")
    yield Sample((make(), []))


@samples(aten.permute.default, aten.permute_copy.default)
def _permute(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 4), [2, 0, 1]))
    yield Sample((make(2, 3), [-1, 0]))
    yield Sample((make(), []))
    yield Sample((make(0, 3), [1, 0]), note="empty")
    yield Sample((make.transposed(3, 4), [1, 0]), note="non-contiguous")


@samples(aten.transpose.int, aten.transpose_copy.int)
def _transpose(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 4), 0, 2))
    yield Sample((make(2, 3), -1, -2))
    yield Sample((make(), 0, -1))
    yield Sample((make(0, 3), 0, 1), note="empty")
    yield Sample((make(2, 3), 1, 1), note="same axis")


@samples(aten.t.default, aten.t_copy.default)
def _t(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3),))
    yield Sample((make(3),))
    yield Sample((make(),))
    yield Sample((make(0, 3),), note="empty")


@samples(aten.flip.default)
def _flip(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), [0, -1]))
    yield Sample((make(4), [0]))
    yield Sample((make(2, 3), []), note="no dims")
    yield Sample((make(0, 3), [1]), note="empty")
    yield Sample((make(), []))
    yield Sample((make.transposed(3, 4), [1]), note="non-contiguous")


@samples(aten.roll.default)
def _roll(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), [1, -5], [0, 1]))
    yield Sample((make(2, 3), [4]), note="flattened")
    yield Sample((make(4), [0], [0]))
    yield Sample((make(0, 3), [1], [0]), note="empty")
    yield Sample((make(5), [2, 2], [0, 0]), note="twice the same axis")
    yield Sample((make(), [1]))
    yield Sample((make.transposed(3, 4), [1], [-1]), note="non-contiguous")


@samples(aten.repeat.default)
def _repeat(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), [2, 2]))
    yield Sample((make(3), [2, 1, 2]), note="more axes")
    yield Sample((make(), [3]))
    yield Sample((make(2, 3), [0, 1]), note="to empty")
    yield Sample((make(0, 3), [2, 1]), note="empty")
    yield Sample((make(), []))


@samples(aten.cat.default)
def _cat(make: Make) -> Iterator[Sample]:
    yield Sample(([make(2, 3), make(1, 3)],))
    yield Sample(([make(2, 3), make(2, 0), make(2, 1)], -1))
    yield Sample(([make(2, 3), make(0)],), note="1-d empty tensor is left out")
    yield Sample(([make(3), make(2, dtype=torch.int8)],), note="mixed dtypes")
    yield Sample(([make(0), make(0)],), note="all empty")
    yield Sample(([make.transposed(3, 4)], 1), note="one tensor")


@samples(aten.stack.default)
def _stack(make: Make) -> Iterator[Sample]:
    yield Sample(([make(2, 3), make(2, 3)],))
    yield Sample(([make(2, 3), make.transposed(2, 3)], -1))
    yield Sample(([make(), make(), make()],))
    yield Sample(([make(0, 2), make(0, 2)], 1), note="empty")
    yield Sample(([make(3), make(3, dtype=torch.int8)],), note="mixed dtypes")
