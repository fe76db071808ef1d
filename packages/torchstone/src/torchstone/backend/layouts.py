"""Memory order: dense tensors that are not contiguous pass into and out of the engine without a copy."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.fx import GraphModule

from ..compiler.graphs import output_node, output_values
from ..torch_internals.operators import namespace

aten = namespace("aten")


@dataclass
class Orders:
    """Axis orders to apply outside the engine.

    ``inputs``: placeholder position → order in which its axes lie in memory;
    ``by_tensor``: the same by position among tensors; ``outputs``: engine results
    whose shape and strides are set after the call, and to what.
    """

    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    by_tensor: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    outputs: list[tuple[int, Layout]] = field(default_factory=list)


@dataclass(frozen=True)
class Layout:
    """PyTorch's shape and strides of an engine result that is contiguous, in memory order.

    ``dense``: the result's memory is the tensor's. Otherwise the tensor has gaps between its elements.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dense: bool

    def of(self, result: torch.Tensor) -> torch.Tensor:
        if self.dense:  # in place, because a view of the result would not be what eager PyTorch returns
            return result.as_strided_(self.shape, self.stride)
        return result.new_empty_strided(self.shape, self.stride).copy_(result)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axis order in which a dense tensor lies contiguously; None if it does so already or never does."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], -tensor.shape[axis])))
    return order if tensor.permute(order).is_contiguous() else None


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def arrange_layouts(module: GraphModule) -> Orders:
    """Let dense tensors in another memory order (channels last, transposed) pass without a copy.

    The graph then takes and returns them in memory order and permutes inside.
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
        # The engine gives tensors without elements other strides.
        if not value.numel() or value.stride() != torch.empty(value.shape, device="meta").stride():
            dense = order is not None or value.is_contiguous()
            orders.outputs.append((position, Layout(tuple(value.shape), value.stride(), dense)))
    output.args = (tuple(results),)
    return orders
