"""Samples of ``lowering.aten.fractional_pooling``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, gradient_samples, samples
from .max_pooling import ties

aten = namespace("aten")

# input, kernel, output sizes
POOLS_2D: list[tuple[str, tuple[int, ...], list[int], list[int]]] = [
    ("overlapping windows", (2, 3, 9, 8), [3, 2], [4, 5]),
    ("no batch axis", (2, 7, 9), [2, 3], [3, 3]),
    ("one window", (1, 2, 5, 6), [2, 3], [1, 1]),
    ("as many windows as fit", (1, 2, 6, 5), [2, 2], [5, 4]),
]
POOLS_3D: list[tuple[str, tuple[int, ...], list[int], list[int]]] = [
    ("overlapping windows", (1, 2, 6, 7, 5), [2, 3, 2], [3, 3, 2]),
    ("no batch axis", (2, 5, 5, 6), [2, 2, 2], [2, 3, 4]),
    ("one window", (1, 2, 3, 4, 3), [2, 3, 2], [1, 1, 1]),
    ("an empty batch", (0, 1, 4, 5, 4), [2, 2, 2], [2, 2, 2]),
]


def _draws(make: Make, shape: tuple[int, ...], rank: int) -> torch.Tensor:
    batch = shape[0] if len(shape) == rank + 2 else 1
    return make(batch, shape[-rank - 1], rank, low=0, high=1)


def _forward(make: Make, pools: list[tuple[str, tuple[int, ...], list[int], list[int]]]) -> Iterator[Sample]:
    for note, shape, kernel, output in pools:
        yield Sample((make(*shape), kernel, output, _draws(make, shape, len(kernel))), note=note)
    _, shape, kernel, output = pools[0]
    yield Sample(
        (ties(make, *shape), kernel, output, _draws(make, shape, len(kernel))), note="equal elements"
    )
    more = _draws(make, (shape[0] + 2, *shape[1:]), len(kernel))
    yield Sample((make(*shape), kernel, output, more), note="draws for more members")
    x = make(*shape)
    x[..., 1, 1], x[..., 2, 2], x[..., 3, 3] = float("nan"), float("nan"), float("inf")
    yield Sample((x, kernel, output, _draws(make, shape, len(kernel))), note="infinity and NaN")


@samples(aten.fractional_max_pool2d.default)
def _fractional_max_pool2d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, POOLS_2D)


@samples(aten.fractional_max_pool3d.default)
def _fractional_max_pool3d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, POOLS_3D)


@gradient_samples(aten.fractional_max_pool2d_backward.default)
def _fractional_max_pool2d_backward(make: Make) -> Iterator[Sample]:
    for note, shape, kernel, output in POOLS_2D:
        x = make(*shape)
        values, indices = aten.fractional_max_pool2d.default(x, kernel, output, _draws(make, shape, 2))
        yield Sample((make(*values.shape), x, kernel, output, indices), note=note)


@gradient_samples(aten.fractional_max_pool3d_backward.default)
def _fractional_max_pool3d_backward(make: Make) -> Iterator[Sample]:
    for note, shape, kernel, output in POOLS_3D:
        x = make(*shape)
        values, indices = aten.fractional_max_pool3d.default(x, kernel, output, _draws(make, shape, 3))
        yield Sample((make(*values.shape), x, kernel, output, indices), note=note)
