"""Recurrent networks kept whole: LSTM, GRU and plain RNN over padded sequences.

Each is one composite whose decomposition has one loop over time per layer and
direction, however long the sequence. ATen's operators reach it as the stand-ins
of ``lowering.operators``. Not here: packed sequences and single cells, which
PyTorch decomposes, and gradients, for which PyTorch expands the network before
anything is lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._ops import OpOverload

from ... import hlo
from ...dtypes import COMPLEX, FLOATING, INT32, INTEGRAL, DType
from ...hlo import Value
from ..composites import composed
from ..operators import STAND_INS
from ..registry import Spec, decomposes, lowers

aten = torch.ops.aten

State = tuple[Value, ...]
"""The hidden state, and for an LSTM the cell state."""
Cell = Callable[[Value, Value, State], State]
"""``(input's share, hidden state's share, state) → next state``; shares are ``[batch, gates]``."""


def _chunks(gates: Value, count: int) -> list[Value]:
    size = gates.shape[1] // count
    return [hlo.slice_axis(gates, 1, i * size, (i + 1) * size) for i in range(count)]


def _lstm_cell(x: Value, h: Value, state: State) -> State:
    gates = _chunks(x + h, 4)
    keep, write, show = hlo.logistic(gates[1]), hlo.logistic(gates[0]), hlo.logistic(gates[3])
    memory = keep * state[1] + write * hlo.tanh(gates[2])
    return show * hlo.tanh(memory), memory


def _gru_cell(x: Value, h: Value, state: State) -> State:
    (reset_x, update_x, new_x), (reset_h, update_h, new_h) = _chunks(x, 3), _chunks(h, 3)
    new = hlo.tanh(new_x + hlo.logistic(reset_x + reset_h) * new_h)
    return ((state[0] - new) * hlo.logistic(update_x + update_h) + new,)


def _tanh_cell(x: Value, h: Value, state: State) -> State:
    return (hlo.tanh(x + h),)


def _relu_cell(x: Value, h: Value, state: State) -> State:
    return (hlo.maximum(x + h, 0.0),)


@dataclass(frozen=True)
class _Weights:
    """One layer and direction: PyTorch's ``[gates, inputs]`` matrices, biases and LSTM projection."""

    of_input: Value
    of_hidden: Value
    biases: tuple[Value, ...]
    projection: Value | None


def _product(x: Value, weight: Value, bias: Value | None) -> Value:
    """``x @ weightᵀ + bias``."""
    result = hlo.dot_general(x, weight, contract=([x.rank - 1], [1]))
    return result if bias is None else result + hlo.broadcast_to(bias, result.shape)


def _layer(x: Value, initial: State, weights: _Weights, cell: Cell, *, backward: bool) -> tuple[Value, State]:
    """One direction over ``[time, batch, inputs]``: ``[time, batch, hidden]`` and the last state."""
    time, batch, _ = x.shape
    bias_x, bias_h = weights.biases or (None, None)
    shares = _product(x, weights.of_input, bias_x)
    count = hlo.convert(hlo.dim_scalar(time), INT32)

    def step(i: Value, outputs: Value, *state: Value) -> list[Value]:
        t = count - 1 - i if backward else i
        share = hlo.take(shares, t, 0)
        hidden, *memory = cell(share, _product(state[0], weights.of_hidden, bias_h), state)
        if weights.projection is not None:
            hidden = _product(hidden, weights.projection, None)
        start = [t, hlo.scalar(0, INT32), hlo.scalar(0, INT32)]
        return [hlo.dynamic_update_slice(outputs, hlo.expand_dims(hidden, [0]), start), hidden, *memory]

    outputs = hlo.full((time, batch, initial[0].shape[1]), 0, x.dtype)
    outputs, *last = hlo.fori(count, step, [outputs, *initial])
    return outputs, tuple(last)


def _network(
    x: Value, initial: Sequence[Value], weights: Sequence[_Weights], cell: Cell, *, bidirectional: bool
) -> tuple[Value, list[Value]]:
    """Layers upon each other; initial and last states are ``[layers · directions, batch, hidden]``."""
    directions = 2 if bidirectional else 1
    lasts: list[State] = []
    for layer in range(len(weights) // directions):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            first = tuple(hlo.squeeze(hlo.slice_axis(s, 0, place, place + 1), [0]) for s in initial)
            made, last = _layer(x, first, weights[place], cell, backward=direction == 1)
            outputs.append(made)
            lasts.append(last)
        x = hlo.concatenate(outputs, 2)
    kinds = zip(*lasts, strict=True)
    return x, [hlo.concatenate([hlo.expand_dims(s, [0]) for s in states], 0) for states in kinds]


def _grouped(params: Sequence[Value], *, has_biases: bool, projected: bool) -> list[_Weights]:
    """PyTorch's flat list of parameters by layer and direction."""
    size = 2 + 2 * has_biases + projected
    groups = [params[start : start + size] for start in range(0, len(params), size)]
    return [
        _Weights(g[0], g[1], tuple(g[2:4]) if has_biases else (), g[-1] if projected else None)
        for g in groups
    ]


def _recurrent(
    name: str,
    cell: Cell,
    input: Value,
    hx: Sequence[Value],
    params: Sequence[Value],
    out: Sequence[Spec],
    *,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    """The composite ``torchstone.<name>`` of the input, the initial states and all parameters."""
    # An LSTM's hidden state is narrower than its cell state where it is projected.
    projected = len(hx) == 2 and not hlo.same_dim(hx[0].shape[2], hx[1].shape[2])

    def kernel(x: Value, *rest: Value) -> list[Value]:
        weights = _grouped(rest[len(hx) :], has_biases=has_biases, projected=projected)
        x = hlo.transpose(x, [1, 0, 2]) if batch_first else x
        outputs, lasts = _network(x, rest[: len(hx)], weights, cell, bidirectional=bidirectional)
        return [hlo.transpose(outputs, [1, 0, 2]) if batch_first else outputs, *lasts]

    attributes = {
        "has_biases": has_biases,
        "bidirectional": bidirectional,
        "batch_first": batch_first,
        "projected": projected,
    }
    return composed(name, [input, *hx, *params], kernel, out, attributes)


def _expanded(original: OpOverload) -> None:
    """Rewrite ``original`` to its stand-in, or step by step where dropout is drawn between the layers."""
    own, steps = STAND_INS[original], decomposition_table[original]

    @decomposes(original)
    def decomposition(*arguments: Any) -> Any:
        dropout, train = arguments[5:7]
        return (steps if dropout and train else own)(*arguments)


for _original in STAND_INS:
    _expanded(_original)

# The number of layers follows from the weights; what drops something out in training was expanded.
_IGNORED = ("num_layers", "dropout", "train")


@lowers(STAND_INS[aten.lstm.input], dtypes=FLOATING | COMPLEX, ignores=_IGNORED)
def lstm(
    input: Value,
    hx: list[Value],
    params: list[Value],
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    out: Sequence[Spec],
) -> Any:
    """Outputs, last hidden and last cell states of a long short-term memory network."""
    options = {"has_biases": has_biases, "bidirectional": bidirectional, "batch_first": batch_first}
    return _recurrent("lstm", _lstm_cell, input, hx, params, out, **options)


def _lower_plain(
    name: str, overload: Any, cell: Cell, dtypes: frozenset[DType], gaps: Mapping[DType, str]
) -> None:
    def function(
        input: Value,
        hx: Value,
        params: list[Value],
        has_biases: bool,
        bidirectional: bool,
        batch_first: bool,
        *,
        out: Sequence[Spec],
    ) -> Any:
        options = {"has_biases": has_biases, "bidirectional": bidirectional, "batch_first": batch_first}
        return _recurrent(name, cell, input, [hx], params, out, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Outputs and last hidden states of a recurrent network (``{name}``)."
    lowers(overload, dtypes=dtypes, gaps=gaps, ignores=_IGNORED)(function)


_NO_INTEGERS = dict.fromkeys(
    INTEGRAL, "networks compute in floating point; eager runs some integers by chance"
)

_lower_plain("gru", STAND_INS[aten.gru.input], _gru_cell, FLOATING | COMPLEX, {})
_lower_plain("rnn_tanh", STAND_INS[aten.rnn_tanh.input], _tanh_cell, FLOATING | COMPLEX, _NO_INTEGERS)
_lower_plain("rnn_relu", STAND_INS[aten.rnn_relu.input], _relu_cell, FLOATING, _NO_INTEGERS)
