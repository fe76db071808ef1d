"""Samples of ``lowering.aten.padding``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")


@samples(aten.constant_pad_nd.default)
def _constant_pad(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3), [1, 2, 0, 1], 1))
    yield Sample((make(4, 3), [-1, 1, 1, -2]), note="negative crops")
    yield Sample((make(0, 3), [1, 1, 1, 0]), note="empty")
    yield Sample((make(2), []), note="nothing")
    yield Sample((make.transposed(3, 4), [0, 1], 2.5), note="non-contiguous")


def _paddings(make: Make, axes: int) -> Iterator[tuple[torch.Tensor, list[int]]]:
    spatial = [4, 3, 5][:axes]
    yield make(2, 2, *spatial), [1, 2, 2, 0, 1, 1][: 2 * axes]
    yield make(2, *spatial), [2, 1, 0, 2, 3, 1][: 2 * axes]
    yield make(1, 2, *spatial), [-1, 2, 1, -1, 0, 0][: 2 * axes]
    yield make(0, 2, *spatial), [1, 1] * axes
    yield make(1, 1, *spatial), [0, 0] * axes
    yield make.transposed(2, 2, *spatial), [1, 1] * axes


@samples(aten.reflection_pad1d.default, aten.replication_pad1d.default)
def _pad1d(make: Make) -> Iterator[Sample]:
    yield from (Sample(arguments) for arguments in _paddings(make, 1))


@samples(aten.reflection_pad2d.default, aten.replication_pad2d.default)
def _pad2d(make: Make) -> Iterator[Sample]:
    yield from (Sample(arguments) for arguments in _paddings(make, 2))


@samples(aten.reflection_pad3d.default, aten.replication_pad3d.default)
def _pad3d(make: Make) -> Iterator[Sample]:
    yield from (Sample(arguments) for arguments in _paddings(make, 3))


def _backward(make: Make, axes: int) -> Iterator[Sample]:
    for x, padding in _paddings(make, axes):
        padded = [
            size + sum(padding[2 * (x.dim() - 1 - axis) : 2 * (x.dim() - axis)])
            for axis, size in enumerate(x.shape)
        ]
        yield Sample((make(*padded), x, padding))


@samples(aten.reflection_pad1d_backward.default, aten.replication_pad1d_backward.default, gradient=False)
def _pad1d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, 1)


@samples(aten.reflection_pad2d_backward.default, aten.replication_pad2d_backward.default, gradient=False)
def _pad2d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, 2)


@samples(aten.reflection_pad3d_backward.default, aten.replication_pad3d_backward.default, gradient=False)
def _pad3d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, 3)


@samples(aten._pad_circular.default)
def _circular(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 3, 4), [1, 2]))
    yield Sample((make(1, 2, 3, 4), [2, 0, 1, 1]), note="two axes")
    yield Sample((make(1, 2, 3, 4), [-1, 2, 1, -1]), note="negative crops")
