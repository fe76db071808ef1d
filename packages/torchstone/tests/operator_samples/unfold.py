"""Samples of ``lowering.aten.unfold``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")

# shape; kernel, dilation, padding, stride
BLOCKS: list[tuple[str, tuple[int, ...], list[Any]]] = [
    ("overlapping, padded", (2, 3, 6, 5), [[3, 2], [1, 1], [1, 0], [2, 1]]),
    ("dilated", (1, 2, 8, 7), [[2, 3], [3, 2], [1, 2], [2, 3]]),
    ("no batch axis", (3, 4, 4), [[2, 2], [1, 1], [0, 0], [2, 2]]),
    ("one block", (1, 2, 3, 2), [[3, 2], [1, 1], [0, 0], [1, 1]]),
    ("single elements", (2, 1, 3, 4), [[1, 1], [1, 1], [0, 0], [1, 2]]),
]


@samples(aten.im2col.default)
def _im2col(make: Make) -> Iterator[Sample]:
    for note, shape, rest in BLOCKS:
        yield Sample((make(*shape), *rest), note=note)
    yield Sample((make.transposed(2, 3, 6, 5), *BLOCKS[0][2]), note="non-contiguous")


@samples(aten.col2im.default)
def _col2im(make: Make) -> Iterator[Sample]:
    for note, shape, rest in BLOCKS:
        columns = aten.im2col.default(torch.empty(shape, device="meta"), *rest).shape
        yield Sample((make(*columns), list(shape[-2:]), *rest), note=note)
