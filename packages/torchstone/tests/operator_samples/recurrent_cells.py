"""Samples of ``lowering.aten.recurrent_cells``."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
BATCH, INPUTS, HIDDEN = 2, 3, 5


def cells(make: Make, gates: int) -> Iterator[Sample]:
    """One step with and without biases."""

    def random(*shape: int) -> torch.Tensor:
        return make(*shape, low=-1, high=1)

    for biases in (True, False):
        states = [random(BATCH, HIDDEN) for _ in range(2 if gates == 4 else 1)]
        params = [random(gates * HIDDEN, INPUTS), random(gates * HIDDEN, HIDDEN)]
        params += [random(gates * HIDDEN), random(gates * HIDDEN)] if biases else []
        hx = states if gates == 4 else states[0]
        yield Sample((random(BATCH, INPUTS), hx, *params), note="biases" if biases else "no biases")


@samples(aten.lstm_cell.default)
def _lstm_cell(make: Make) -> Iterator[Sample]:
    yield from cells(make, 4)


@samples(aten.gru_cell.default)
def _gru_cell(make: Make) -> Iterator[Sample]:
    yield from cells(make, 3)


@samples(aten.rnn_tanh_cell.default, aten.rnn_relu_cell.default)
def _rnn_cell(make: Make) -> Iterator[Sample]:
    yield from cells(make, 1)
