"""Recurrent networks as PyTorch operators of Torchstone: stand-ins, layers and their gradients.

``aten.lstm.input`` and its relatives have no shape rule. PyTorch finds their shapes
by running every time step, in each of several passes, and differentiates the steps
one by one. So each of them gets a stand-in, such as ``torchstone::lstm`` (``lstm_packed``
for packed sequences), with the same schema and the original as its CPU kernel. If a
gradient is needed, a stand-in becomes one ``torchstone::rnn_layer`` per layer and
direction, whose gradient is one ``torchstone::rnn_layer_backward``. The lowerings are in
``lowering.aten.rnn``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from ...lowering.cells import CELLS, lstm_exposed
from ...lowering.own import STAND_INS, library
from ...torch_internals.dispatch import any_requires_grad, below_autograd
from ...torch_internals.operators import OpOverload, overload_name, schema_of
from ...torch_internals.tensors import check
from . import onednn
from .declaring import COMPOSITE, declare, differentiate, implement

Tensor = torch.Tensor
Tensors = list[torch.Tensor]


class _TensorMaths:
    """The functions of :class:`~torchstone.lowering.cells.Maths` for tensors."""

    tanh = staticmethod(torch.tanh)
    sigmoid = staticmethod(torch.sigmoid)
    relu = staticmethod(torch.relu)

    @staticmethod
    def where_positive(x: Tensor, then: Tensor) -> Tensor:
        return torch.where(x <= 0, 0, then)

    @staticmethod
    def split(x: Tensor, count: int) -> Sequence[Tensor]:
        return x.chunk(count, -1)

    @staticmethod
    def join(parts: Sequence[Tensor]) -> Tensor:
        return torch.cat(list(parts), -1)


_maths = _TensorMaths()


# One layer and direction -----------------------------------------------------


def _steps(rows: Tensor, batch_sizes: Tensor | None, *, backward: bool) -> Iterator[tuple[int, int]]:
    """Yield ``(start, size)`` of each step's rows in the buffer, in the order of the loop."""
    sizes = [rows.shape[1]] * rows.shape[0] if batch_sizes is None else batch_sizes.tolist()
    starts = [sum(sizes[:t]) for t in range(len(sizes))]
    places = list(zip(starts, sizes, strict=True))
    yield from reversed(places) if backward else places


def _flat(rows: Tensor, batch_sizes: Tensor | None) -> Tensor:
    return rows.flatten(0, 1) if batch_sizes is None else rows


def _layer_kernel(
    gates: Tensor,
    hx: Tensors,
    weight: Tensor,
    bias: Tensor | None,
    projection: Tensor | None,
    batch_sizes: Tensor | None,
    mode: str,
    reverse: bool,
) -> Tensors:
    cell, state = CELLS[mode], list(hx)
    shares = _flat(gates, batch_sizes)
    fakes = _layer_shapes(gates, hx, weight, bias, projection, batch_sizes, mode, reverse)
    output, activations, *previous = [
        torch.empty_like(_flat(fake, batch_sizes)) for fake in (fakes[0], *fakes[1 + len(hx) :])
    ]
    for start, size in _steps(gates, batch_sizes, backward=reverse):
        rows, before = slice(start, start + size), tuple(s[:size] for s in state)
        of_x = _maths.split(shares[rows], cell.gates)
        after, made = cell.forward(_maths, of_x, F.linear(before[0], weight, bias), before)
        if projection is not None:
            after = (F.linear(after[0], projection), *after[1:])
        output[rows], activations[rows] = after[0], made
        for buffer, value in zip(previous, before, strict=True):
            buffer[rows] = value
        state = [torch.cat([new, old[size:]]) for new, old in zip(after, state, strict=True)]
    saved = [
        value.view(fake.shape)
        for value, fake in zip([activations, *previous], fakes[1 + len(hx) :], strict=True)
    ]
    return [output.view(fakes[0].shape), *state, *saved]


def _check_steps(steps: Any) -> None:
    check(steps > 0, lambda: "Expected sequence length to be larger than 0 in RNN")


def _layer_shapes(
    gates: Tensor,
    hx: Tensors,
    weight: Tensor,
    bias: Tensor | None,
    projection: Tensor | None,
    batch_sizes: Tensor | None,
    mode: str,
    reverse: bool,
) -> Tensors:
    """Return output, last states, activations, and the states before each step."""
    if batch_sizes is None:
        _check_steps(gates.shape[0])
    lead, hidden = gates.shape[:-1], weight.shape[0] // CELLS[mode].gates
    previous = [gates.new_empty((*lead, state.shape[-1])) for state in hx]
    activations = gates.new_empty((*lead, CELLS[mode].activations * hidden))
    return [
        gates.new_empty((*lead, hx[0].shape[-1])),
        *(torch.empty_like(state) for state in hx),
        activations,
        *previous,
    ]


def _backward_kernel(
    grad_output: Tensor,
    grad_last: Tensors,
    saved: Tensors,
    weight: Tensor,
    projection: Tensor | None,
    batch_sizes: Tensor | None,
    mode: str,
    reverse: bool,
) -> Tensors:
    # PyTorch's gradients are conjugates; the code below computes plain ones.
    cell, grads = CELLS[mode], [grad.conj() for grad in grad_last]
    outputs = _flat(grad_output, batch_sizes).conj()
    activations, *previous = [_flat(value, batch_sizes) for value in saved]
    of_x = activations.new_empty((len(activations), weight.shape[0]))
    of_h, of_output = torch.empty_like(of_x), torch.empty_like(outputs)
    for start, size in _steps(grad_output, batch_sizes, backward=not reverse):
        rows = slice(start, start + size)
        now = [grads[0][:size] + outputs[rows], *(grad[:size] for grad in grads[1:])]
        of_output[rows] = now[0]
        if projection is not None:
            now[0] = now[0] @ projection
        before = tuple(value[rows] for value in previous)
        active = _maths.split(activations[rows], cell.activations)
        of_x[rows], of_h[rows], direct, memory = cell.backward(_maths, tuple(now), active, before)
        through = of_h[rows] @ weight
        made = (through if direct is None else through + direct, *memory)
        grads = [torch.cat([new, old[size:]]) for new, old in zip(made, grads, strict=True)]
    results = [of_x.view(*grad_output.shape[:-1], -1), *grads, of_h.t() @ previous[0], of_h.sum(0)]
    if projection is not None:
        results.append(of_output.t() @ lstm_exposed(_maths, activations, previous[1]))
    return [value.conj().resolve_conj() for value in results]


def _backward_shapes(
    grad_output: Tensor,
    grad_last: Tensors,
    saved: Tensors,
    weight: Tensor,
    projection: Tensor | None,
    batch_sizes: Tensor | None,
    mode: str,
    reverse: bool,
) -> Tensors:
    """Return gradients of gates, initial states, weight, bias and, if there is one, the projection."""
    shapes = [(*grad_output.shape[:-1], weight.shape[0]), *(grad.shape for grad in grad_last)]
    shapes += [weight.shape, weight.shape[:1], *([] if projection is None else [projection.shape])]
    return [grad_output.new_empty(shape) for shape in shapes]


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensors) -> None:
    _, hx, weight, bias, projection, batch_sizes, ctx.mode, ctx.reverse = inputs
    ctx.states, ctx.has_bias = len(hx), bias is not None
    ctx.save_for_backward(weight, projection, batch_sizes, *output)


def _differentiate(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    weight, projection, batch_sizes, *made = ctx.saved_tensors
    outputs, saved = made[: 1 + ctx.states], made[1 + ctx.states :]
    given = [torch.zeros_like(o) if g is None else g for o, g in zip(outputs, grads, strict=False)]
    of_gates, *rest = torch.ops.torchstone.rnn_layer_backward(
        given[0], given[1:], saved, weight, projection, batch_sizes, ctx.mode, ctx.reverse
    )
    of_states, (of_weight, of_bias, *of_projection) = rest[: ctx.states], rest[ctx.states :]
    found = (of_gates, of_states, of_weight, of_bias if ctx.has_bias else None)
    return *found, of_projection[0] if of_projection else None, None, None, None


implement("rnn_layer", _layer_kernel, _layer_shapes)
differentiate("rnn_layer", _differentiate, _save, through="rnn_layer_backward")
implement(
    "rnn_layer_backward",
    _backward_kernel,
    _backward_shapes,
    no_gradient="a compiled function is differentiated once",
)


# Whole networks --------------------------------------------------------------


def _run_layer(
    x: Tensor,
    hx: Tensors,
    params: Tensors,
    has_biases: bool,
    batch_sizes: Tensor | None,
    mode: str,
    reverse: bool,
) -> Tensors:
    """Return output and last states of one layer and direction; tensors for the gradient may follow."""
    if batch_sizes is None and onednn.takes(x, hx, params):
        return onednn.run_layer(x, hx, params, reverse)
    of_input, of_hidden, *rest = params
    bias_x, bias_h = rest[:2] if has_biases else (None, None)
    projection = rest[-1] if len(rest) % 2 else None
    gates = F.linear(x, of_input, bias_x)
    made: Tensors = torch.ops.torchstone.rnn_layer(
        gates, hx, of_hidden, bias_h, projection, batch_sizes, mode, reverse
    )
    return made


def by_layers(
    mode: str,
    x: Tensor,
    batch_sizes: Tensor | None,
    hx: Tensors,
    params: Tensors,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Run a network over ``[time, batch, inputs]``, or packed ``[rows, inputs]``, layer by layer.

    Returns the output and the last states, ``[layers · directions, batch, hidden]`` each.
    """
    directions = 2 if bidirectional else 1
    size = len(params) // (num_layers * directions)
    lasts: list[Tensors] = [[] for _ in hx]
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            place = layer * directions + direction
            output, *made = _run_layer(
                x,
                [states[place] for states in hx],
                params[place * size : (place + 1) * size],
                has_biases,
                batch_sizes,
                mode,
                direction == 1,
            )
            outputs.append(output)
            for states, state in zip(lasts, made, strict=False):
                states.append(state)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout and train and layer < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    return x, *(torch.stack(states) for states in lasts)


def _layered(original: OpOverload) -> Callable[..., tuple[Tensor, ...]]:
    """:func:`by_layers` with the schema of ``original``."""
    mode = schema_of(original).name.removeprefix("aten::")

    def padded(input: Tensor, hx: Any, params: Tensors, *options: Any) -> tuple[Tensor, ...]:
        *rest, batch_first = options
        x = input.transpose(0, 1) if batch_first else input
        output, *lasts = by_layers(mode, x, None, _listed(hx), params, *rest)
        return output.transpose(0, 1) if batch_first else output, *lasts

    def packed(
        data: Tensor, batch_sizes: Tensor, hx: Any, params: Tensors, *options: Any
    ) -> tuple[Tensor, ...]:
        return by_layers(mode, data, batch_sizes, _listed(hx), params, *options)

    return packed if overload_name(original) == "data" else padded


def _listed(hx: Any) -> Tensors:
    return [hx] if isinstance(hx, torch.Tensor) else list(hx)


def _shapes(original: OpOverload) -> Callable[..., tuple[Tensor, ...]]:
    """Return the shape rule of a network: each direction's output is as wide as the hidden state."""
    packed = overload_name(original) == "data"

    def shapes(input: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        hx, _, *options = arguments[1:] if packed else arguments
        states, bidirectional = _listed(hx), options[4]
        if not packed:
            steps, batch = input.shape[:2][:: -1 if options[5] else 1]
            _check_steps(steps)
            check(
                states[0].shape[1] == batch,
                lambda: f"Expected a hidden state for a batch of {batch}, got {states[0].shape[1]}",
            )
        width = states[0].shape[2] * (2 if bidirectional else 1)
        lasts = [state.new_empty(state.shape) for state in states]
        if packed or not options[5]:
            return input.new_empty((*input.shape[:-1], width)), *lasts
        return input.new_empty((steps, batch, width)).transpose(0, 1), *lasts  # the kernel's own memory order

    return shapes


def _first_is_taken(input: Tensor, hx: Any, params: Tensors, has_biases: bool, *options: Any) -> bool:
    """Whether the first layer of a padded network runs on eager PyTorch's own kernel."""
    states, batch_first = _listed(hx), options[-1]
    if len(states) != 2:
        return False
    x = input.transpose(0, 1) if batch_first else input
    projected = states[0].shape[-1] != states[1].shape[-1]
    return onednn.takes(x, [one[0] for one in states], params[: 2 + 2 * has_biases + projected])


def _stand_in(original: OpOverload, own: OpOverload) -> None:
    """Trace a network as Torchstone's operator, or in some cases as layers.

    It becomes layers if there is dropout between them, or if oneDNN runs the first one.
    """
    name, layered = schema_of(own).name.partition("::")[2], _layered(original)
    padded = overload_name(original) == "input"

    def differentiable(*arguments: Any) -> Any:
        if torch.is_grad_enabled() and any_requires_grad(*arguments):
            return layered(*arguments)
        with below_autograd():
            return own(*arguments)

    def expanded(*arguments: Any) -> Any:
        layers, dropout, train = arguments[4:7] if padded else arguments[5:8]
        between_layers = layers > 1 and dropout and train
        return (layered if between_layers or (padded and _first_is_taken(*arguments)) else own)(*arguments)

    implement(name, lambda *arguments: original(*arguments), _shapes(original))
    library.impl(name, differentiable, "Autograd")
    declare(own, derivative="its own, through rnn_layer_backward")
    declare(original, stand_in={COMPOSITE: expanded}, decomposition=expanded)


for _original, _own in STAND_INS.items():
    _stand_in(_original, _own)
