"""Replacements of recurrent composites: PyTorch's networks and cells, Torchstone's kernels for one layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.utils import rnn

own = torch.ops.torchstone

Replacement = Callable[[Sequence[Any], dict[str, Any]], Any]
NETWORKS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _states(mode: str) -> int:
    return 2 if mode == "lstm" else 1


def _network(mode: str, *, packed: bool) -> Replacement:
    """Call ``torch.lstm`` or a relative; packed networks take data and batch sizes first."""
    inputs = 2 if packed else 1

    def function(operands: Sequence[Any], a: dict[str, Any]) -> Any:
        given, rest = operands[:inputs], operands[inputs:]
        hidden, weights = rest[: _states(mode)], rest[_states(mode) :]
        each = 2 + 2 * a["has_biases"] + a["projected"]
        layers = len(weights) // (each * (1 + a["bidirectional"]))
        flags = (0.0, False, a["bidirectional"], *([] if packed else [a["batch_first"]]))
        initial = hidden if mode == "lstm" else hidden[0]
        return getattr(torch, mode)(*given, initial, weights, a["has_biases"], layers, *flags)

    return function


def _cell(mode: str) -> Replacement:
    states = _states(mode)

    def function(operands: Sequence[Any], _: dict[str, Any]) -> Any:
        hidden = operands[1 : 1 + states]
        initial = hidden if states == 2 else hidden[0]
        return getattr(torch, f"{mode}_cell")(operands[0], initial, *operands[1 + states :])

    return function


def _layer(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    gates, weight, bias, projection, sizes, *hidden = operands
    return own.rnn_layer(gates, hidden, weight, bias, projection, sizes, a["mode"], a["reverse"])


def _layer_backward(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    grad, weight, projection, sizes, *rest = operands
    last, saved = rest[: _states(a["mode"])], rest[_states(a["mode"]) :]
    return own.rnn_layer_backward(grad, last, saved, weight, projection, sizes, a["mode"], a["reverse"])


def _pack(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    padded, lengths = operands
    packed = rnn.pack_padded_sequence(padded, lengths, a["batch_first"])
    steps = padded.shape[1 if a["batch_first"] else 0]
    rows = padded.shape[0] * padded.shape[1]
    data = packed.data.new_zeros((rows, *packed.data.shape[1:]))
    data[: len(packed.data)] = packed.data
    sizes = torch.zeros(steps, dtype=torch.int64)
    sizes[: len(packed.batch_sizes)] = packed.batch_sizes
    return data, sizes


def _pad(operands: Sequence[Any], a: dict[str, Any]) -> Any:
    data, sizes = operands
    there = sizes[sizes > 0]
    # PyTorch allows no step without a sequence; the composite pads such steps.
    packed = rnn.PackedSequence(data[: int(there.sum())], there)
    total = max(len(sizes), a["total_length"])
    return rnn.pad_packed_sequence(packed, a["batch_first"], a["padding_value"], total)


REPLACEMENTS: dict[str, Replacement] = {
    **{mode: _network(mode, packed=False) for mode in NETWORKS},
    **{f"{mode}_packed": _network(mode, packed=True) for mode in NETWORKS},
    **{f"{mode}_cell": _cell(mode) for mode in NETWORKS},
    "pack_padded_sequence": _pack,
    "pad_packed_sequence": _pad,
    "rnn_layer": _layer,
    "rnn_layer_backward": _layer_backward,
}
