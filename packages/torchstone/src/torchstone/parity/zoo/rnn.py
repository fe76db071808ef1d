"""Recurrent networks and single cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .example import Example, model, register

BATCH, TIME, INPUTS, HIDDEN = 2, 5, 8, 16


def steps() -> Tensor:
    return torch.randn(TIME, BATCH, INPUTS)


def batches() -> Tensor:
    return torch.randn(BATCH, TIME, INPUTS)


def state() -> Tensor:
    return torch.randn(BATCH, HIDDEN)


def _layer(
    name: str,
    documentation: str,
    kind: Callable[..., nn.Module],
    inputs: Callable[[], Tensor] = steps,
    **options: Any,
) -> None:
    register(__name__, name, documentation, lambda: Example(kind(INPUTS, HIDDEN, **options), (inputs(),)))


_layer("lstm", "Basic LSTM (time first)", nn.LSTM)
_layer("lstm_batch_first", "LSTM with batch_first=True", nn.LSTM, batches, batch_first=True)
_layer("lstm_bidirectional", "Bidirectional LSTM", nn.LSTM, bidirectional=True)
_layer("lstm_multi_layer", "3-layer stacked LSTM", nn.LSTM, num_layers=3)


@model
def lstm_with_hidden() -> Example:
    """LSTM with initial (h0, c0)"""
    return Example(nn.LSTM(INPUTS, HIDDEN), (steps(), (state()[None], state()[None])))


_layer("gru", "GRU variants", nn.GRU)
_layer("gru_batch_first", "GRU variants", nn.GRU, batches, batch_first=True)
_layer("gru_bidirectional", "GRU variants", nn.GRU, bidirectional=True)
_layer("gru_multi_layer", "GRU variants", nn.GRU, num_layers=2)
_layer("rnn_tanh", "RNN variants", nn.RNN, nonlinearity="tanh")
_layer("rnn_relu", "RNN variants", nn.RNN, nonlinearity="relu")
_layer("rnn_bidirectional", "RNN variants", nn.RNN, bidirectional=True)


@model
def lstm_cell() -> Example:
    """Single-step cells"""
    return Example(nn.LSTMCell(INPUTS, HIDDEN), (torch.randn(BATCH, INPUTS), (state(), state())))


@model
def gru_cell() -> Example:
    """Single-step cells"""
    return Example(nn.GRUCell(INPUTS, HIDDEN), (torch.randn(BATCH, INPUTS), state()))


@model
def rnn_cell() -> Example:
    """Single-step cells"""
    return Example(nn.RNNCell(INPUTS, HIDDEN), (torch.randn(BATCH, INPUTS), state()))
