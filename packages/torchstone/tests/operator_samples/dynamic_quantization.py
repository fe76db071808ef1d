"""Samples of ``lowering.aten.dynamic_quantization``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from . import Make, Sample, samples
from .quantization import NOT_DIFFERENTIABLE, ties, weights

own = torch.ops.torchstone
IDENTITY = torch.eye(8, dtype=torch.int8), [1.0], [0], None, False
"""Weights with which the output shows the input's integers times its scale."""


@samples(own.quantized_linear_dynamic.default, gradient=False, reason=NOT_DIFFERENTIABLE)
def _linear(make: Make) -> Iterator[Sample]:
    if make.dtype != torch.float32:
        return
    for channels, relu in ((True, False), (False, True)):
        for reduced in (True, False):
            given = make(40, 16), *weights(7, 16, channels=channels), torch.randn(7), relu, reduced
            yield Sample(given, note=f"channels {channels}, relu {relu}, reduced {reduced}")
    yield Sample((make(2, 3, 16), *weights(7, 16, channels=True), None, False, True), note="batches, no bias")
    halfway = ties(0.1)[300 - 99 : 300 + 147]
    line = torch.cat([halfway, torch.tensor([-10.0, 15.5])])  # gives a scale of 0.1 in 8 bits
    yield Sample((line.reshape(-1, 8), *IDENTITY, False), note="ties")
    for factor in (1e-4, 1e-9, 1e-42, 0.0):
        yield Sample((make(6, 8) * factor, *IDENTITY, True), note=f"tiny: {factor}")
    yield Sample((make(6, 8, low=2, high=3) * 1e-4, *IDENTITY, True), note="tiny, positive")
    yield Sample((make(6, 8, low=-3, high=-2) * 1e-4, *IDENTITY, True), note="tiny, negative")
    yield Sample((make(0, 8), *IDENTITY, True), note="empty")
