"""Samples of ``lowering.aten.adaptive_pooling``."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, gradient_samples, samples
from .max_pooling import ties

aten = namespace("aten")

SIZES_2D: list[tuple[str, tuple[int, ...], list[int]]] = [
    ("overlapping windows", (2, 3, 7, 10), [3, 4]),
    ("side by side", (1, 2, 6, 8), [3, 2]),
    ("one window", (2, 3, 5, 4), [1, 1]),
    ("more outputs than inputs, no batch axis", (2, 3, 4), [5, 7]),
    ("same size", (1, 2, 3, 4), [3, 4]),
    ("long windows", (1, 1, 3, 41), [2, 2]),
    ("empty batch", (0, 2, 4, 5), [2, 2]),
]
SIZES_3D: list[tuple[str, tuple[int, ...], list[int]]] = [
    ("overlapping windows", (1, 2, 5, 4, 7), [2, 3, 4]),
    ("one window", (2, 3, 4, 2), [1, 1, 1]),
    ("side by side", (1, 2, 4, 6, 2), [2, 3, 2]),
    ("more outputs than inputs", (1, 1, 2, 3, 2), [3, 4, 2]),
]


def _average(make: Make, sizes: list[tuple[str, tuple[int, ...], list[int]]]) -> Iterator[Sample]:
    for note, shape, output in sizes:
        yield Sample((make(*shape), output), note=note)
    yield Sample((make.transposed(*sizes[0][1]), sizes[0][2]), note="non-contiguous")
    x = make(*sizes[0][1])
    x[..., 0, 1], x[..., 2, 3] = float("inf"), float("nan")
    yield Sample((x, sizes[0][2]), note="infinity and NaN")


@samples(aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool2d(make: Make) -> Iterator[Sample]:
    yield from _average(make, SIZES_2D)


@samples(aten._adaptive_avg_pool3d.default)
def _adaptive_avg_pool3d(make: Make) -> Iterator[Sample]:
    yield from _average(make, SIZES_3D)


def _average_backward(make: Make, sizes: list[tuple[str, tuple[int, ...], list[int]]]) -> Iterator[Sample]:
    for note, shape, output in sizes:
        yield Sample((make(*shape[: len(shape) - len(output)], *output), make(*shape)), note=note)


@gradient_samples(aten._adaptive_avg_pool2d_backward.default)
def _adaptive_avg_pool2d_backward(make: Make) -> Iterator[Sample]:
    yield from _average_backward(make, SIZES_2D)


@gradient_samples(aten._adaptive_avg_pool3d_backward.default)
def _adaptive_avg_pool3d_backward(make: Make) -> Iterator[Sample]:
    yield from _average_backward(make, SIZES_3D)


def _maximum(make: Make, sizes: list[tuple[str, tuple[int, ...], list[int]]]) -> Iterator[Sample]:
    for note, shape, output in sizes[:2]:
        yield Sample((make(*shape), output), note=note)
    yield Sample((ties(make, *sizes[0][1]), sizes[0][2]), note="equal elements")
    x = make(*sizes[0][1])
    x[..., 0, 1], x[..., 2, :3], x[..., 3:, 3:] = float("inf"), float("nan"), float("-inf")
    yield Sample((x, sizes[0][2]), note="infinity and NaN")
    for note, shape, output in sizes[2:]:
        yield Sample((make(*shape), output), note=note)


@samples(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool2d(make: Make) -> Iterator[Sample]:
    yield from _maximum(make, SIZES_2D)


@samples(aten.adaptive_max_pool3d.default)
def _adaptive_max_pool3d(make: Make) -> Iterator[Sample]:
    yield from _maximum(make, SIZES_3D)


@gradient_samples(aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_pool2d_backward(make: Make) -> Iterator[Sample]:
    for note, shape, output in SIZES_2D:
        x = make(*shape)
        values, indices = aten.adaptive_max_pool2d.default(x, output)
        yield Sample((make(*values.shape), x, indices), note=note)


@gradient_samples(aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_pool3d_backward(make: Make) -> Iterator[Sample]:
    for note, shape, output in SIZES_3D:
        x = make(*shape)
        values, indices = aten.adaptive_max_pool3d.default(x, output)
        yield Sample((make(*values.shape), x, indices), note=note)
