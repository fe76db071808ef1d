"""Passes dense tensors that are not contiguous into and out of the engine without a copy."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule

from ..compiler.graphs import output_node, output_values
from ..torch_internals.operators import namespace

aten = namespace("aten")


@dataclass
class Orders:
    """The axis orders that are applied to inputs and results outside the engine.

    ``inputs`` maps the position of a placeholder to the order in which its axes lie in memory. ``by_tensor``
    has the same orders, by position among the placeholders that are tensors. ``outputs`` has the positions of
    the engine results whose shape and strides are set after the call, each with its :class:`Layout`.
    """

    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    by_tensor: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    outputs: list[tuple[int, Layout]] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """The shape and strides that PyTorch expects of an engine result.

    The engine returns the result contiguous, with its axes in memory order. ``dense``: the tensor can use the
    result's memory as it is. Otherwise the tensor has gaps between its elements, and needs its own memory.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dense: bool

    def of(self, result: torch.Tensor) -> torch.Tensor:
        if self.dense:  # in place, because eager PyTorch returns a tensor that is not a view
            return result.as_strided_(self.shape, self.stride)
        return result.new_empty_strided(self.shape, self.stride).copy_(result)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Return the axis order in which a dense tensor is contiguous; None if it already is, or none exists."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], -tensor.shape[axis])))
    return order if tensor.permute(order).is_contiguous() else None


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def arrange_layouts(module: GraphModule) -> Orders:
    """Change the graph so that dense tensors in another memory order need no copy.

    Such tensors are channels last or transposed, for example. The graph then takes and returns them with
    their axes in memory order, and permutes the axes inside.
    """
    graph, orders = module.graph, Orders()
    tensors = 0
    for position, node in enumerate(graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        order = memory_order(value)
        if order is not None:
            orders.inputs[position] = order
            orders.by_tensor.append((tensors, order))
            with graph.inserting_after(node):
                restored = graph.call_function(aten.permute.default, (node, list(inverse(order))))
            restored.meta = dict(node.meta)
            node.meta = {**node.meta, "val": value.permute(order)}
            node.replace_all_uses_with(restored, delete_user_cb=lambda user, own=restored: user is not own)
        tensors += 1
    output = output_node(module)
    results = output_values(module)
    for position, node in enumerate(results):
        value = node.meta["val"]
        order = memory_order(value)
        if order is not None:
            with graph.inserting_before(output):
                results[position] = graph.call_function(aten.permute.default, (node, list(order)))
            results[position].meta = {**node.meta, "val": value.permute(order)}
        # For tensors without elements, the engine's strides differ from PyTorch's.
        if not value.numel() or value.stride() != torch.empty(value.shape, device="meta").stride():
            dense = order is not None or value.is_contiguous()
            orders.outputs.append((position, Layout(tuple(value.shape), value.stride(), dense)))
    output.args = (tuple(results),)
    return orders
