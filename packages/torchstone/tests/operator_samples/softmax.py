"""Samples of ``lowering.aten.softmax``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
INFINITY = float("inf")


@samples(aten._softmax.default, aten._log_softmax.default)
def _forward(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), -1, False))
    yield Sample((make.transposed(2, 3, 4), 1, False), note="non-contiguous")
    yield Sample((make(0, 3), 0, False), note="empty")
    yield Sample((make(), 0, False), note="0-d")
    rows = [
        [INFINITY, 1.0, 2.0],
        [-INFINITY, 1.0, 2.0],
        [-INFINITY] * 3,
        [1e4, 1e4, -1e4],
        [float("nan"), 0, 1],
    ]
    yield Sample((make.tensor(rows), 1, False), note="special values")
    yield Sample((make(2, 1), 1, False), note="size 1")


@samples(aten._softmax_backward_data.default, aten._log_softmax_backward_data.default, gradient=False)
def _backward(make: Make) -> Iterator[Sample]:
    yield Sample((make(3, 4), make(3, 4, low=0, high=1), -1, make.dtype))
    yield Sample(
        (make.transposed(2, 3, 4), make(2, 3, 4, low=0, high=1), 1, make.dtype), note="non-contiguous"
    )
    yield Sample((make(0, 3), make(0, 3), 0, make.dtype), note="empty")
    yield Sample((make(), make(low=0, high=1), 0, make.dtype), note="0-d")


def hidden(*shape: int) -> torch.Tensor:
    """Return a mask that hides the whole first row, and nothing in the first column of other rows."""
    mask = torch.rand(shape) > 0.5
    mask[..., 0] = False
    mask[(0,) * (len(shape) - 1)] = True
    return mask


@samples(aten._masked_softmax.default)
def _masked(make: Make) -> Iterator[Sample]:
    yield Sample((make(2, 2, 3, 4), hidden(2, 2, 3, 4), -1, 2))
    yield Sample((make(2, 2, 3, 3), torch.ones(3, 3, dtype=torch.bool).triu(1), 3, 0), note="queries × keys")
    yield Sample((make(2, 2, 3, 4), hidden(2, 4), 3, 1), note="keys")
    # For a non-contiguous operand eager masks the wrong elements: it pairs them in memory order.
    yield Sample((make(2, 2, 3, 4), hidden(2, 2, 3, 4)), note="defaults")


@samples(aten._masked_softmax_backward.default, gradient=False)
def _masked_backward(make: Make) -> Iterator[Sample]:
    if not make.is_float:
        return
    mask = hidden(2, 2, 3, 4)
    for dim in (-1, None):
        result = aten._masked_softmax(make(2, 2, 3, 4), mask, -1, 2)
        yield Sample((make(2, 2, 3, 4), result, mask, dim))
