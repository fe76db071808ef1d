"""Samples of ``lowering.aten.resize``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.lowering.registry import aten_overloads
from torchstone.torch_internals.operators import namespace

from . import Make, Sample, gradient_samples, samples

aten = namespace("aten")

# input sizes, output sizes, scale factors as the operator gets them
SIZES: list[tuple[str, list[int], list[int], list[float | None]]] = [
    ("larger", [3, 4, 5], [7, 6, 9], [None, None, None]),
    ("smaller", [7, 9, 8], [3, 4, 2], [None, None, None]),
    ("given scale factors", [3, 4, 5], [4, 6, 12], [1.5, 1.7, 2.4]),
    ("twice and three times", [3, 2, 4], [6, 6, 12], [2.0, 3.0, 3.0]),
    ("same size", [3, 4, 2], [3, 4, 2], [None, 1.0, None]),
    ("from one element", [1, 1, 1], [4, 3, 2], [None, None, None]),
    ("to one element", [5, 4, 3], [1, 1, 1], [None, None, None]),
    ("much smaller", [23, 17, 20], [3, 2, 3], [0.15, None, 0.17]),
]


def _nearest(make: Make, rank: int) -> Iterator[Sample]:
    for note, sizes, output, scales in SIZES:
        yield Sample((make(2, 3, *sizes[:rank]), output[:rank], *scales[:rank]), note=note)
    yield Sample((make.transposed(1, 2, *SIZES[0][1][:rank]), SIZES[0][2][:rank]), note="non-contiguous")


def _nearest_backward(make: Make, rank: int) -> Iterator[Sample]:
    for note, sizes, output, scales in SIZES:
        shape = [2, 3, *sizes[:rank]]
        yield Sample((make(2, 3, *output[:rank]), output[:rank], shape, *scales[:rank]), note=note)


def _weighted(make: Make, rank: int) -> Iterator[Sample]:
    for position, (note, sizes, output, scales) in enumerate(SIZES):
        if note == "same size" and make.dtype not in (torch.float32, torch.float64):
            continue  # a copy, which eager makes in every dtype
        x = make(2, 3, *sizes[:rank])
        yield Sample((x, output[:rank], position % 2 == 1, *scales[:rank]), note=note)
        if note in ("larger", "smaller", "to one element"):
            yield Sample(
                (x, output[:rank], position % 2 == 0, *scales[:rank]), note=f"{note}, other alignment"
            )


def _weighted_backward(make: Make, rank: int) -> Iterator[Sample]:
    for sample in _weighted(make, rank):
        x, output, *rest = sample.args
        yield Sample((make(2, 3, *output), output, list(x.shape), *rest), note=sample.note)


def _vec(make: Make, rank: int, nearest: bool) -> Iterator[Sample]:
    """The overloads that take either the output's size or all scale factors."""
    for factors in ([1.5, 2.0, 2.4], None, [0.6, 0.5, 0.4], [2.0, 3.0, 1.0]):
        x = make(2, 3, *[5, 4, 7][:rank])
        size = [7, 3, 9][:rank] if factors is None else None
        alignment = [] if nearest else [factors is None]
        yield Sample((x, size, *alignment, factors and factors[:rank]))


def _register() -> None:
    def add(names: list[str], function: Any, rank: int) -> None:
        def forward(make: Make) -> Iterator[Sample]:
            return function(make, rank)

        samples(*aten_overloads(names))(forward)

    def add_backward(names: list[str], function: Any, rank: int) -> None:
        def backward(make: Make) -> Iterator[Sample]:
            return function(make, rank)

        gradient_samples(*aten_overloads(names))(backward)

    def add_vec(names: list[str], rank: int, nearest: bool) -> None:
        def vec(make: Make) -> Iterator[Sample]:
            return _vec(make, rank, nearest)

        samples(*aten_overloads(names))(vec)

    for rank in (1, 2, 3):
        names = [f"upsample_nearest{rank}d", f"_upsample_nearest_exact{rank}d"]
        add(names, _nearest, rank)
        add_backward([f"{name}_backward" for name in names], _nearest_backward, rank)
        add_vec([f"{name}.vec" for name in names], rank, nearest=True)
    for name, rank in (
        ("upsample_linear1d", 1),
        ("upsample_bilinear2d", 2),
        ("upsample_trilinear3d", 3),
        ("upsample_bicubic2d", 2),
        ("_upsample_bilinear2d_aa", 2),
        ("_upsample_bicubic2d_aa", 2),
        ("_upsample_lanczos2d_aa", 2),
    ):
        add([name], _weighted, rank)
        add_vec([f"{name}.vec"], rank, nearest=False)
        add_backward([f"{name}_backward"], _weighted_backward, rank)


_register()
