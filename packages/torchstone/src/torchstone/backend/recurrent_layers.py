"""Decides which LSTM layers eager PyTorch's own kernel runs: those for which it was measured to be faster."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..compiler.operators.onednn import Layer
from ..config import config
from ..lowering.own import own
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.dispatch import without_modes
from ..torch_internals.fake import FakeTensorMode
from ..torch_internals.operators import namespace
from .options import Options
from .passes import DIVIDING_PART, Region
from .records import GraphRecord
from .watching import compile_part

aten = namespace("aten")

Tensor = torch.Tensor

_COMPILED, _ONEDNN = "compiled", "oneDNN"
_HANDOVER_S = 2e-4
"""The cost of leaving a program and entering the next one, in seconds."""
_SMALL = 5e6
"""With fewer multiplications in a layer, a compiled loop takes less time than entering another program."""
_RTOL, _ATOL = 1e-3, 1e-3


def chooser(options: Options) -> Callable[[Layer], bool] | None:
    """Return a function that tells whether eager PyTorch's kernel should run a layer.

    Returns None if the options or the settings do not allow eager PyTorch to run anything, or if the engine
    cannot measure.
    """
    if not options.fallback or not options.tuning or config.tuning_budget_s <= 0:
        return None
    engine = get_engine(options.engine, options.device)
    decisions = getattr(engine, "decisions", None)
    if decisions is None:
        return None

    def prefers(layer: Layer) -> bool:
        sizes = layer.steps, layer.batch, layer.inputs, layer.hidden
        if sizes[0] * sizes[1] * 4 * sizes[3] * (sizes[2] + sizes[3]) < _SMALL:
            return False
        question = {"what": "lstm", "sizes": sizes, "gradient": layer.saving}
        question |= {"torch": torch.__version__, "threads": torch.get_num_threads()}
        inputs: list[Tensor] = []

        def given() -> list[Tensor]:
            inputs.extend([] if inputs else _inputs(layer))
            return inputs

        # A trace is in progress, and what is measured must not become part of it.
        with without_modes(), torch.no_grad():
            found = decisions.best(
                question,
                {
                    _COMPILED: lambda: _compiled(layer, options, given()),
                    _ONEDNN: lambda: _eager(layer, given()),
                },
                agree=_agree,
                handover_s=_HANDOVER_S,
                budget_s=config.tuning_budget_s,
            )
        return bool(found.chosen == _ONEDNN)

    return prefers


def _inputs(layer: Layer) -> list[Tensor]:
    """Return random inputs, initial states and parameters; with a gradient, also the results' gradients."""
    make = torch.Generator().manual_seed(0)
    state, gates = (layer.batch, layer.hidden), 4 * layer.hidden
    lead = (layer.steps, layer.batch)
    shapes = [(*lead, layer.inputs), state, state, (gates, layer.inputs), (gates, layer.hidden), (gates,)]
    shapes += [(gates,), *([(*lead, layer.hidden), state, state] if layer.saving else [])]
    scale = layer.hidden**-0.5
    return [(torch.rand(shape, generator=make, device="cpu") * 2 - 1) * scale for shape in shapes]


def _eager(layer: Layer, inputs: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    x, h, c, *rest = inputs
    params, grads = rest[:4], rest[4:]

    def run() -> list[Tensor]:
        made = own.onednn_lstm(x, h, c, params, False, layer.saving)
        if not layer.saving:
            return list(made[:3])
        return [made[0], *own.onednn_lstm_backward(grads, x, h, c, params, made, False)]

    return run


def _compiled(layer: Layer, options: Options, inputs: Sequence[Tensor]) -> Callable[[], list[Tensor]]:
    """Compile a graph that has only the layer and, if the layer saves for one, its gradient."""
    region = Region(_graph(layer, inputs), options, GraphRecord("inference"))
    DIVIDING_PART.run(region)
    part = compile_part(region)
    return lambda: part(list(inputs))


def _graph(layer: Layer, inputs: Sequence[Tensor]) -> GraphModule:
    graph, mode = Graph(), FakeTensorMode()

    def value_of(item: Any) -> Any:
        return item.meta["val"] if isinstance(item, Node) else item

    def call(function: Any, *args: Any) -> Node:
        node = graph.call_function(function, args)
        with mode:
            node.meta["val"] = function(*pytree.tree_map_only(Node, value_of, args))
        return node

    def parts(node: Node) -> list[Node]:
        return [call(operator.getitem, node, place) for place in range(len(node.meta["val"]))]

    given = []
    for place, tensor in enumerate(inputs):
        node = graph.placeholder(f"input_{place}")
        node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
        given.append(node)
    x, h, c, *params = given
    if not layer.saving:
        states = [call(aten.unsqueeze.default, state, 0) for state in (h, c)]
        made = call(own.lstm.default, x, states, params, True, 1, 0.0, False, False, False)
        output, *lasts = parts(made)
        graph.output([output, *(call(aten.squeeze.dim, one, 0) for one in lasts)])
        return GraphModule({}, graph)
    *params, grad, grad_h, grad_c = params
    of_input, of_hidden, bias_x, bias_h = params
    rows = call(aten.view.default, x, [layer.steps * layer.batch, layer.inputs])
    shares = call(aten.addmm.default, bias_x, rows, call(aten.t.default, of_input))
    gates = call(aten.view.default, shares, [layer.steps, layer.batch, 4 * layer.hidden])
    layered = call(own.rnn_layer.default, gates, [h, c], of_hidden, bias_h, None, None, "lstm", False)
    output, _, _, *saved = parts(layered)
    backward = own.rnn_layer_backward.default
    back = call(backward, grad, [grad_h, grad_c], saved, of_hidden, None, None, "lstm", False)
    of_gates, of_h, of_c, of_weight, of_bias = parts(back)
    flat = call(aten.view.default, of_gates, [layer.steps * layer.batch, 4 * layer.hidden])
    of_x = call(aten.view.default, call(aten.mm.default, flat, of_input), list(inputs[0].shape))
    graph.output(
        [
            output,
            of_x,
            call(aten.mm.default, call(aten.t.default, flat), rows),
            of_weight,
            call(aten.sum.dim_IntList, flat, [0]),
            of_bias,
            of_h,
            of_c,
        ]
    )
    return GraphModule({}, graph)


def _agree(expected: Sequence[Tensor], found: Sequence[Tensor]) -> bool:
    """Whether the results are equal up to rounding: both ways sum the same products in different orders."""
    return all(
        torch.allclose(one, other, rtol=_RTOL, atol=_ATOL * float(one.abs().max().clamp(min=1)))
        for one, other in zip(expected, found, strict=True)
    )
