"""Keeps tensors that a forward graph saves for its backward graph in the engine's own memory order.

An engine that computes convolutions with channels last would transpose each value that it saves, and
the backward graph would transpose it back. Only the backward graph sees these tensors, so they are
saved with channels last instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..compiler.graphs import output_values
from ..torch_internals.operators import namespace
from .outputs import root, viewed
from .unknown import is_unknown

aten = namespace("aten")

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""PyTorch's memory formats with channels last, by rank."""


def save_channels_last(module: GraphModule, saved: slice) -> list[tuple[int, ...] | None]:
    """Give the outputs in ``saved`` that come from convolutions channels-last strides.

    An output stays unchanged if the caller also gets it or a view of it. Returns a list with an entry for
    each output: its new strides, or None if it is unchanged.
    """
    values = output_values(module)
    chosen: dict[Any, tuple[int, ...]] = {}
    shown = Counter(root(value) for value in dict.fromkeys(values) if isinstance(value, Node))
    places = range(len(values))[saved]
    given = {value for place, value in enumerate(values) if place not in places and isinstance(value, Node)}
    computed = _from_convolutions(module)
    for value in dict.fromkeys(values[saved]):
        if value not in computed or value in given or shown[value] > 1:
            continue
        tensor = value.meta.get("val")
        if is_unknown(value) or not isinstance(tensor, torch.Tensor) or tensor.dim() not in _FORMATS:
            continue
        if tensor.is_contiguous():
            value.meta["val"] = moved = tensor.contiguous(memory_format=_FORMATS[tensor.dim()])
            chosen[value] = moved.stride()
    return [chosen.get(value) for value in values]


def take_as_given(module: GraphModule, inputs: Sequence[Any]) -> None:
    """Replace the strides that the placeholders were traced with by those of ``inputs``."""
    for node, given in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=False):
        if isinstance(given, torch.Tensor) and given.stride() != node.meta["val"].stride():
            node.meta["val"] = given


def _from_convolutions(module: GraphModule) -> set[Node]:
    """Return the 2-D and 3-D convolutions, and all values computed from them without a view in between."""
    found: set[Node] = set()
    for node in module.graph.nodes:
        if node.target is aten.convolution.default:
            if node.meta["val"].dim() in _FORMATS:
                found.add(node)
        elif not found.isdisjoint(node.all_input_nodes) and viewed(node) is None and node.op != "output":
            found.add(node)
    return found
