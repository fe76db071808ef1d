"""Recurrent networks kept whole: LSTM, GRU and plain RNN over padded and packed sequences.

Each is one composite. Its decomposition has one loop over time per layer and
direction, whatever the length of the sequence. A layer that keeps the values for its
gradient, and the gradient itself, also have one loop each. ATen's operators are traced
as Torchstone's (``compiler.operators.recurrent``). Not here: single cells
(``recurrent_cells``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ... import hlo
from ...dtypes import COMPLEX, COPYABLE, FLOATING, INTEGRAL, DType
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..cells import CELLS, Cell
from ..composites import Expand, composed, expanded
from ..own import STAND_INS, own
from ..recurrence import Input, Packed, Padded, Rows, Weights, differentiate_layer, run_layer
from ..registry import Spec, lowers

aten = namespace("aten")


def _rows(x: Value, batch: hlo.Dim, sizes: Value | None) -> Rows:
    return Padded(x.shape[0], batch) if sizes is None else Packed(x.shape[0], batch, sizes)


def _network(
    x: Value,
    sizes: Value | None,
    initial: Sequence[Value],
    params: Sequence[Value],
    cell: Cell,
    *,
    has_biases: bool,
    bidirectional: bool,
    projected: bool,
) -> tuple[Value, list[Value]]:
    """Stacked layers; initial and last states are ``[layers · directions, batch, hidden]``."""
    rows = _rows(x, initial[0].shape[1], sizes)
    directions, size = 2 if bidirectional else 1, 2 + 2 * has_biases + projected
    lasts: list[list[Value]] = []
    for layer in range(len(params) // (size * directions)):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            of_input, of_hidden, *rest = params[place * size : (place + 1) * size]
            bias_x, bias_h = rest[:2] if has_biases else (None, None)
            weights = Weights(of_hidden, bias_h, rest[-1] if projected else None)
            first = [hlo.squeeze(hlo.slice_axis(s, 0, place, place + 1), [0]) for s in initial]
            given = Input(x, of_input, bias_x)
            made, last, _ = run_layer(rows, given, first, weights, cell, reverse=direction == 1)
            outputs.append(made)
            lasts.append(last)
        x = hlo.concatenate(outputs, x.rank - 1)
    kinds = zip(*lasts, strict=True)
    return x, [hlo.concatenate([hlo.expand_dims(s, [0]) for s in states], 0) for states in kinds]


def _composite(
    name: str,
    x: Value,
    sizes: Value | None,
    hx: Sequence[Value],
    params: Sequence[Value],
    out: Sequence[Spec],
    *,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool | None = None,
) -> Any:
    """The composite ``torchstone.<name>`` of the input, the initial states and all parameters."""
    # With a projection, an LSTM's hidden state is narrower than its cell state.
    projected = len(hx) == 2 and not hlo.same_dim(hx[0].shape[2], hx[1].shape[2])
    options = {"has_biases": has_biases, "bidirectional": bidirectional, "projected": projected}
    cell, packed = CELLS[name.removesuffix("_packed")], [] if sizes is None else [sizes]

    def kernel(x: Value, *rest: Value) -> list[Value]:
        first, states = len(packed), len(packed) + len(hx)
        x = hlo.transpose(x, [1, 0, 2]) if batch_first else x
        sizes = rest[0] if packed else None
        outputs, lasts = _network(x, sizes, rest[first:states], rest[states:], cell, **options)
        return [hlo.transpose(outputs, [1, 0, 2]) if batch_first else outputs, *lasts]

    attributes = {**options, "batch_first": batch_first}
    return composed(name, [x, *packed, *hx, *params], kernel, out, attributes)


# The weights determine the number of layers. In training, dropout has already been expanded.
_IGNORED = ("num_layers", "dropout", "train")
_NO_INTEGERS = dict.fromkeys(
    INTEGRAL, "networks compute in floating point; eager runs some integers by chance"
)


def _lower(mode: str, dtypes: frozenset[DType], gaps: Mapping[DType, str]) -> None:
    def padded(
        input: Value,
        hx: Any,
        params: list[Value],
        has_biases: bool,
        bidirectional: bool,
        batch_first: bool,
        *,
        out: Sequence[Spec],
    ) -> Any:
        options = {"has_biases": has_biases, "bidirectional": bidirectional, "batch_first": batch_first}
        return _composite(mode, input, None, _listed(hx), params, out, **options)

    def packed(
        data: Value,
        batch_sizes: Value,
        hx: Any,
        params: list[Value],
        has_biases: bool,
        bidirectional: bool,
        *,
        out: Sequence[Spec],
    ) -> Any:
        options = {"has_biases": has_biases, "bidirectional": bidirectional}
        return _composite(f"{mode}_packed", data, batch_sizes, _listed(hx), params, out, **options)

    padded.__doc__ = f"Outputs and last states of a recurrent network (``{mode}``)."
    packed.__doc__ = f"Outputs and last states of a recurrent network (``{mode}``) over packed sequences."
    for overload, function in (("input", padded), ("data", packed)):
        stand_in = STAND_INS[getattr(getattr(aten, mode), overload)]
        lowers(stand_in, dtypes=dtypes, gaps=gaps, ignores=_IGNORED)(function)


def _listed(hx: Any) -> list[Value]:
    return [hx] if isinstance(hx, Value) else list(hx)


_lower("lstm", FLOATING | COMPLEX, {})
_lower("gru", FLOATING | COMPLEX, {})
_lower("rnn_tanh", FLOATING | COMPLEX, _NO_INTEGERS)
_lower("rnn_relu", FLOATING, _NO_INTEGERS)


@lowers(own.rnn_layer.default, dtypes=FLOATING | COMPLEX, gaps=_NO_INTEGERS)
def rnn_layer(
    gates: Value,
    hx: list[Value],
    weight: Value,
    bias: Value | None,
    projection: Value | None,
    batch_sizes: Value | None,
    mode: str,
    reverse: bool,
    *,
    out: Sequence[Spec],
) -> Any:
    """Outputs and last states of one layer in one direction, and the values that its gradient needs."""

    def kernel(gates: Value, weight: Value, *rest: Any) -> list[Value]:
        bias, projection, sizes, *initial = rest
        rows = _rows(gates, initial[0].shape[0], sizes)
        weights = Weights(weight, bias, projection)
        output, last, saved = run_layer(
            rows, Input(gates), initial, weights, CELLS[mode], reverse=reverse, saving=True
        )
        return [output, *last, *saved]

    inputs = [gates, weight, bias, projection, batch_sizes, *hx]
    return composed("rnn_layer", inputs, kernel, out, {"mode": mode, "reverse": reverse})


@lowers(own.rnn_layer_backward.default, dtypes=FLOATING | COMPLEX, gaps=_NO_INTEGERS)
def rnn_layer_backward(
    grad_output: Value,
    grad_last: list[Value],
    saved: list[Value],
    weight: Value,
    projection: Value | None,
    batch_sizes: Value | None,
    mode: str,
    reverse: bool,
    *,
    out: Sequence[Spec],
) -> Any:
    """Gradients of ``rnn_layer`` in gates, initial states, weight, bias and projection."""

    def kernel(grad_output: Value, weight: Value, *rest: Any) -> list[Value]:
        projection, sizes, *values = rest
        last, saved = values[: len(grad_last)], values[len(grad_last) :]
        rows = _rows(grad_output, last[0].shape[0], sizes)
        return differentiate_layer(
            rows, grad_output, last, saved, weight, projection, CELLS[mode], reverse=reverse
        )

    inputs = [grad_output, weight, projection, batch_sizes, *grad_last, *saved]
    return composed("rnn_layer_backward", inputs, kernel, out, {"mode": mode, "reverse": reverse})


@lowers(own.pack_padded_sequence.default, dtypes=COPYABLE)
def pack_padded_sequence(
    input: Value, lengths: Value, batch_first: bool, expand: Expand, out: Sequence[Spec]
) -> list[Value]:
    """The rows of all sequences, step by step, then zeros; also the number of sequences at each step."""
    return expanded("pack_padded_sequence", [input, lengths], expand, out, {"batch_first": batch_first})


@lowers(own.pad_packed_sequence.default, dtypes=COPYABLE)
def pad_packed_sequence(
    data: Value,
    batch_sizes: Value,
    batch: int,
    batch_first: bool,
    padding_value: float,
    total_length: int,
    expand: Expand,
    out: Sequence[Spec],
) -> list[Value]:
    """The padded sequences and their lengths."""
    attributes = {
        "batch": batch,
        "batch_first": batch_first,
        "padding_value": float(padding_value),
        "total_length": total_length,
    }
    return expanded("pad_packed_sequence", [data, batch_sizes], expand, out, attributes)
