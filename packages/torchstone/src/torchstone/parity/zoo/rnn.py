"""Recurrent networks and single cells."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .example import Example, model

BATCH, TIME, INPUTS, HIDDEN = 2, 5, 8, 16


def steps() -> Tensor:
    return torch.randn(TIME, BATCH, INPUTS)


def batches() -> Tensor:
    return torch.randn(BATCH, TIME, INPUTS)


def state() -> Tensor:
    return torch.randn(BATCH, HIDDEN)


@model
def lstm() -> Example:
    """Basic LSTM (time first)"""
    return Example(nn.LSTM(INPUTS, HIDDEN), (steps(),))


@model
def lstm_batch_first() -> Example:
    """LSTM with batch_first=True"""
    return Example(nn.LSTM(INPUTS, HIDDEN, batch_first=True), (batches(),))


@model
def lstm_bidirectional() -> Example:
    """Bidirectional LSTM"""
    return Example(nn.LSTM(INPUTS, HIDDEN, bidirectional=True), (steps(),))


@model
def lstm_multi_layer() -> Example:
    """3-layer stacked LSTM"""
    return Example(nn.LSTM(INPUTS, HIDDEN, num_layers=3), (steps(),))


@model
def lstm_with_hidden() -> Example:
    """LSTM with initial (h0, c0)"""
    return Example(nn.LSTM(INPUTS, HIDDEN), (steps(), (state()[None], state()[None])))


@model
def gru() -> Example:
    """GRU variants"""
    return Example(nn.GRU(INPUTS, HIDDEN), (steps(),))


@model
def gru_batch_first() -> Example:
    """GRU variants"""
    return Example(nn.GRU(INPUTS, HIDDEN, batch_first=True), (batches(),))


@model
def gru_bidirectional() -> Example:
    """GRU variants"""
    return Example(nn.GRU(INPUTS, HIDDEN, bidirectional=True), (steps(),))


@model
def gru_multi_layer() -> Example:
    """GRU variants"""
    return Example(nn.GRU(INPUTS, HIDDEN, num_layers=2), (steps(),))


@model
def rnn_tanh() -> Example:
    """RNN variants"""
    return Example(nn.RNN(INPUTS, HIDDEN, nonlinearity="tanh"), (steps(),))


@model
def rnn_relu() -> Example:
    """RNN variants"""
    return Example(nn.RNN(INPUTS, HIDDEN, nonlinearity="relu"), (steps(),))


@model
def rnn_bidirectional() -> Example:
    """RNN variants"""
    return Example(nn.RNN(INPUTS, HIDDEN, bidirectional=True), (steps(),))


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
