"""Samples of ``lowering.aten.average_pooling``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, gradient_samples, samples

aten = namespace("aten")

# shape; kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
WINDOWS_2D: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("padding counts", (2, 3, 7, 6), [[3, 3], [2, 2], [1, 1], False, True, None]),
    ("padding does not count", (1, 2, 7, 8), [[3, 2], [2, 3], [1, 1], True, False, None]),
    ("ceil mode", (2, 8, 9), [[2, 3], [3, 2], [1, 1], True, True, None]),
    ("divisor", (1, 1, 5, 6), [[2, 2], [1, 2], [0, 1], False, True, 3]),
    ("many elements", (1, 2, 9, 11), [[5, 4], [2, 1], [2, 2], True, False, None]),
    ("the whole plane", (2, 2, 5, 6), [[5, 6], [1, 1], [0, 0], False, True, None]),
    ("one entry for all axes", (1, 2, 5, 5), [[2], [2], [1], False, True, None]),
    ("no batch", (0, 2, 4, 4), [[2, 2], [2, 2], [0, 0], False, True, None]),
]
WINDOWS_3D: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("padding counts", (1, 2, 5, 4, 6), [[3, 2, 3], [2, 1, 2], [1, 0, 1], False, True, None]),
    ("padding does not count", (2, 5, 4, 6), [[2, 2, 2], [2, 3, 2], [1, 1, 0], True, False, None]),
    ("divisor", (1, 1, 4, 5, 4), [[2, 2, 2], [1, 2, 2], [0, 1, 0], False, True, 5]),
    ("many elements", (1, 1, 6, 6, 7), [[3, 3, 3], [2, 1, 2], [1, 1, 1], True, True, None]),
]


def _forward(make: Make, windows: list[tuple[str, tuple[int, ...], list[Any]]]) -> Iterator[Sample]:
    for note, shape, rest in windows:
        yield Sample((make(*shape), *rest), note=note)
    x = make(*windows[0][1])
    yield Sample((x, [2]), note="default stride")
    yield Sample((make.transposed(*windows[0][1]), [2]), note="non-contiguous")
    if make.is_float:
        x = make(*windows[0][1])
        x[..., 0, 1], x[..., 3, 4] = float("inf"), float("nan")
        yield Sample((x, *windows[0][2]), note="infinity and NaN")


@samples(aten.avg_pool2d.default)
def _avg_pool2d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, WINDOWS_2D)


@samples(aten.avg_pool3d.default)
def _avg_pool3d(make: Make) -> Iterator[Sample]:
    yield from _forward(make, WINDOWS_3D)


def _backward(
    make: Make, forward: Any, windows: list[tuple[str, tuple[int, ...], list[Any]]]
) -> Iterator[Sample]:
    for note, shape, rest in windows:
        shape_out = forward(torch.empty(shape, device="meta"), *rest).shape
        yield Sample((make(*shape_out), make(*shape), *rest), note=note)


@gradient_samples(aten.avg_pool2d_backward.default)
def _avg_pool2d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, aten.avg_pool2d.default, WINDOWS_2D)


@gradient_samples(aten.avg_pool3d_backward.default)
def _avg_pool3d_backward(make: Make) -> Iterator[Sample]:
    yield from _backward(make, aten.avg_pool3d.default, WINDOWS_3D)
