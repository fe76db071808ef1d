"""Samples of ``lowering.aten.grid_sample``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")

MODES_2D = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))
MODES_3D = list(itertools.product((0, 1), (0, 1, 2), (False, True)))


def _pairs(make: Make, rank: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    sizes, outputs = [5, 4, 6][:rank], [3, 4, 2][:rank]
    yield "inside and outside", make(2, 3, *sizes), make(2, *outputs, rank, low=-1.6, high=1.6)
    yield "far outside", make(1, 2, *sizes), make(1, *outputs, rank, low=-4.4, high=4.4)
    yield "one element", make(1, 2, *[1] * rank), make(1, *outputs, rank, low=-1.6, high=1.6)
    yield (
        "non-contiguous",
        make.transposed(2, 3, *sizes),
        make(2, *outputs, rank, low=-1, high=1, noncontiguous=True),
    )


def _arguments(make: Make, rank: int, modes: list[tuple[int, int, bool]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield all modes for the first pair, starting with different paddings, and some for the other pairs."""
    (note, input, grid), *rest = _pairs(make, rank)
    for position, mode in enumerate(sorted(modes, key=lambda m: (m[0] - m[1]) % 3)):
        yield f"{note}, mode {position}", [input, grid, *mode]
    for position, (note, input, grid) in enumerate(rest):
        for mode in modes[position :: 2 * len(rest)]:
            yield note, [input, grid, *mode]


def _forward(make: Make, rank: int, modes: list[tuple[int, int, bool]]) -> Iterator[Sample]:
    for note, arguments in _arguments(make, rank, modes):
        yield Sample(tuple(arguments), note=note)


def _backward(make: Make, rank: int, modes: list[tuple[int, int, bool]]) -> Iterator[Sample]:
    for position, (note, arguments) in enumerate(_arguments(make, rank, modes)):
        input, grid = arguments[:2]
        grad = make(*input.shape[:2], *grid.shape[1:-1])
        yield Sample((grad, *arguments, [position % 5 != 4, True]), note=note)


@samples(aten.grid_sampler_2d.default)
def _grid_sampler_2d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, 2, MODES_2D)


@samples(aten.grid_sampler_3d.default)
def _grid_sampler_3d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, 3, MODES_3D)


@samples(aten.grid_sampler_2d_backward.default, gradient=False, reason="eager has no second derivative")
def _grid_sampler_2d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, 2, MODES_2D)


@samples(aten.grid_sampler_3d_backward.default, gradient=False, reason="eager has no second derivative")
def _grid_sampler_3d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, 3, MODES_3D)
