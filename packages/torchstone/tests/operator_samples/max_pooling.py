"""Samples of ``lowering.aten.max_pooling``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, gradient_samples, samples

aten = namespace("aten")

WINDOWS_2D: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("overlapping, padded", (2, 3, 7, 6), [[3, 3], [2, 2], [1, 1], [1, 1], False]),
    ("ceil mode", (1, 2, 7, 8), [[3, 2], [2, 3], [1, 0], [1, 1], True]),
    ("dilated", (2, 8, 9), [[2, 3], [1, 2], [1, 1], [3, 2], False]),
    ("default stride, one entry", (1, 1, 5, 6), [[2], [], [0], [1], False]),
    ("many elements", (1, 2, 9, 11), [[5, 4], [2, 1], [2, 2], [1, 1], True]),
    ("the whole plane", (2, 2, 3, 4), [[3, 4], [1, 1], [0, 0], [1, 1], False]),
    ("single elements", (1, 3, 3, 3), [[1, 1], [2, 2], [0, 0], [1, 1], False]),
    ("long window", (1, 2, 3, 40), [[1, 36], [1, 2], [0, 18], [1, 1], False]),
    ("no batch", (0, 2, 4, 4), [[2, 2], [2, 2], [0, 0], [1, 1], False]),
]
WINDOWS_3D: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("overlapping, padded", (1, 2, 5, 4, 6), [[3, 2, 3], [2, 1, 2], [1, 0, 1], [1, 1, 1], False]),
    ("ceil mode", (2, 5, 4, 6), [[2, 2, 2], [2, 3, 2], [1, 1, 0], [1, 1, 1], True]),
    ("dilated", (1, 1, 6, 5, 7), [[2, 2, 2], [1, 1, 1], [1, 0, 1], [2, 3, 2], False]),
    ("default stride, one entry", (1, 1, 4, 4, 4), [[2], [], [0], [1], False]),
]


def ties(make: Make, *shape: int) -> torch.Tensor:
    """Return a tensor with many equal elements."""
    return make.indices(*shape, high=3).to(make.dtype)


@samples(aten.max_pool2d_with_indices.default)
def _max_pool2d(make: Make) -> Iterator[Sample]:
    for note, shape, rest in WINDOWS_2D:
        yield Sample((make(*shape), *rest), note=note)
    yield Sample((ties(make, 1, 2, 6, 7), [3, 3], [1, 1], [1, 1]), note="equal elements")
    yield Sample((make.transposed(3, 4, 5), [2, 2]), note="non-contiguous")
    if make.is_float:
        inf, nan = float("inf"), float("nan")
        x = make(1, 1, 6, 6)
        x[0, 0, :3, :3] = -inf
        x[0, 0, 3, 3:] = inf
        yield Sample((x, [3, 3], [1, 1], [1, 1]), note="infinities")
        x = make(1, 2, 6, 6)
        x[0, :, 1, 1] = x[0, :, 2, 2] = x[0, 1, 4, 5] = nan
        yield Sample((x, [3, 3], [2, 1], [1, 1]), note="NaN")
        yield Sample((x, [5, 5], [1, 1], [2, 2]), note="NaN, many elements")


@samples(aten.max_pool3d_with_indices.default)
def _max_pool3d(make: Make) -> Iterator[Sample]:
    for note, shape, rest in WINDOWS_3D:
        yield Sample((make(*shape), *rest), note=note)
    yield Sample((ties(make, 1, 1, 4, 4, 5), [2, 3, 2], [1, 1, 2], [1, 1, 1]), note="equal elements")


def _backward(
    make: Make, forward: Any, windows: list[tuple[str, tuple[int, ...], list[Any]]]
) -> Iterator[Sample]:
    for note, shape, rest in windows:
        if rest[1]:  # the backward overloads take no default stride
            x = make(*shape)
            values, indices = forward(x, *rest)
            yield Sample((make(*values.shape), x, *rest, indices), note=note)


@gradient_samples(aten.max_pool2d_with_indices_backward.default)
def _max_pool2d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, aten.max_pool2d_with_indices.default, WINDOWS_2D)


@gradient_samples(aten.max_pool3d_with_indices_backward.default)
def _max_pool3d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, aten.max_pool3d_with_indices.default, WINDOWS_3D)


def _unpooled(make: Make, rank: int) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, list[int]]]:
    pool = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)[rank - 2]
    x = torch.randn(2, 3, *[6, 4, 5][:rank])
    indices = pool(x, [2] * rank)[1]
    yield "as pooled", make(*indices.shape), indices, list(x.shape[2:])
    yield "larger", make(*indices.shape), indices, [size + 1 for size in x.shape[2:]]
    yield "no batch axis", make(*indices.shape[1:]), indices[0], list(x.shape[2:])
    yield "non-contiguous", make(*indices.shape, noncontiguous=True), indices, list(x.shape[2:])


@samples(aten.max_unpool2d.default)
def _max_unpool2d(make: Make) -> Iterator[Sample]:
    for note, values, indices, size in _unpooled(make, 2):
        yield Sample((values, indices, size), note=note)


@samples(aten.max_unpool3d.default)
def _max_unpool3d(make: Make) -> Iterator[Sample]:
    for note, values, indices, size in _unpooled(make, 3):
        yield Sample((values, indices, size, [2, 2, 2], [0, 0, 0]), note=note)
