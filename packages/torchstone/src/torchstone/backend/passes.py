"""Graph passes of the backend: mutations, outputs that need no engine, memory order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..compiler.graphs import output_node, output_values
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import namespace
from ..torch_internals.tensors import storage_identity

aten = namespace("aten")


def complete_metadata(module: GraphModule) -> None:
    """Give ``val`` to nodes that PyTorch inserted without it (random state for checkpointing)."""
    mode = None
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, FakeTensor):
            mode = value.fake_mode
        if value is not None or node.op != "call_function" or mode is None:
            continue
        args, kwargs = pytree.tree_map_only(Node, lambda n: n.meta.get("val"), (node.args, node.kwargs))
        with mode:
            node.meta["val"] = node.target(*args, **kwargs)


def extract_mutations(module: GraphModule) -> list[int]:
    """Turn ``copy_(placeholder, value)`` into leading outputs; returns the placeholders' positions."""
    graph = module.graph
    position = {node: i for i, node in enumerate(n for n in graph.nodes if n.op == "placeholder")}
    sources: dict[Node, Any] = {}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.copy_.default and node.args[0] in position:
            target, source = node.args[:2]
            source = _fitted(graph, node, target, source)
            sources[target] = source
            node.replace_all_uses_with(source)
            graph.erase_node(node)
    if sources:
        output = output_node(module)
        output.args = ((*sources.values(), *output_values(module)),)
        graph.lint()
        module.recompile()
    return [position[target] for target in sources]


def _fitted(graph: Any, node: Node, target: Node, source: Any) -> Any:
    """``source`` broadcast and converted to ``target``'s shape and dtype, as ``copy_`` does."""
    want, have = target.meta["val"], source.meta["val"]
    with graph.inserting_before(node):
        if have.dtype != want.dtype:
            source = graph.call_function(aten._to_copy.default, (source,), {"dtype": want.dtype})
            source.meta["val"] = have = have.to(want.dtype)
        if have.shape != want.shape:
            source = graph.call_function(aten.expand.default, (source, list(want.shape)))
            source.meta["val"] = have.expand(want.shape)
    return source


@dataclass
class Outputs:
    """Where each output of a graph comes from: an engine result, a view of one, an input, or a constant."""

    sources: list[tuple[str, Any]]

    @cached_property
    def plain(self) -> bool:
        """True if the outputs are exactly the engine's results, in their order."""
        return self.sources == [("result", i) for i in range(len(self.sources))]

    def assemble(self, inputs: list[Any], results: list[Any]) -> list[Any]:
        return [_output(kind, value, inputs, results) for kind, value in self.sources]


def _output(kind: str, value: Any, inputs: list[Any], results: list[Any]) -> Any:
    match kind:
        case "result":
            return results[value]
        case "input":
            return inputs[value]
        case "view":
            return value.of(results)
    return value


@dataclass(frozen=True)
class View:
    """Part of the memory of an engine's result; ``offset`` counts elements."""

    result: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, results: list[Any]) -> Any:
        base = results[self.result]
        return base.as_strided(self.shape, self.stride, base.storage_offset() + self.offset)


def split_outputs(module: GraphModule, *, keep_views: bool = False) -> Outputs:
    """Leave in the graph's output only distinct computed tensors; say how to put the full list together.

    ``keep_views``: outputs that PyTorch makes views of another output are views of it here too.
    """
    graph = module.graph
    position = {node: i for i, node in enumerate(n for n in graph.nodes if n.op == "placeholder")}
    output = output_node(module)
    results: dict[Node, int] = {}
    sources: list[tuple[str, Any]] = []
    values = output_values(module)
    bases = _bases(value for value in values if value not in position) if keep_views else {}
    for value in values:
        if not isinstance(value, Node):
            sources.append(("constant", value))
        elif value in position:
            sources.append(("input", position[value]))
        elif not isinstance(value.meta.get("val"), torch.Tensor):
            sources.append(("constant", value.meta.get("val")))
        elif value in bases:
            fake = value.meta["val"]
            base = results.setdefault(bases[value], len(results))
            view = View(base, tuple(fake.shape), fake.stride(), fake.storage_offset())
            sources.append(("view", view))
        else:
            sources.append(("result", results.setdefault(value, len(results))))
    output.args = (tuple(results),)
    module.recompile()
    return Outputs(sources)


def _bases(values: Iterable[Any]) -> dict[Node, Node]:
    """Values that are views → the value among them that is all of their memory."""
    shared: dict[Any, list[Node]] = defaultdict(list)
    for value in dict.fromkeys(values):
        fake = value.meta.get("val") if isinstance(value, Node) else None
        if isinstance(fake, torch.Tensor) and fake.numel() and not fake.is_conj() and not fake.is_neg():
            shared[storage_identity(fake.untyped_storage()), fake.dtype].append(value)
    found: dict[Node, Node] = {}
    for group in shared.values():
        whole = next((value for value in group if _is_whole(value.meta["val"])), None)
        if whole is not None:
            found.update({value: whole for value in group if value is not whole})
    return found


def _is_whole(tensor: torch.Tensor) -> bool:
    """True if a tensor is dense and has all of its memory."""
    dense = tensor.is_contiguous() or memory_order(tensor) is not None
    return dense and tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


@dataclass
class Orders:
    """Axis orders to apply outside the engine.

    ``inputs``: placeholder position → order in which its axes lie in memory;
    ``by_tensor``: the same by position among tensors; ``outputs``: engine
    result → permutation that restores PyTorch's axes.
    """

    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    by_tensor: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    outputs: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)


def memory_order(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """The axis order in which a dense tensor lies contiguously; None if it does so already or never does."""
    if tensor.is_contiguous() or tensor.numel() == 0:
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], -tensor.shape[axis])))
    return order if tensor.permute(order).is_contiguous() else None


def inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(axis) for axis in range(len(order)))


def arrange_layouts(module: GraphModule, outputs: Outputs) -> Orders:
    """Let dense tensors in another memory order (channels last, transposed) pass without a copy.

    The graph then takes and returns them in memory order and permutes inside.
    """
    graph, orders = module.graph, Orders()
    tensors = 0
    for position, node in enumerate([n for n in graph.nodes if n.op == "placeholder"]):
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
        order = memory_order(node.meta["val"])
        if order is not None:
            with graph.inserting_before(output):
                results[position] = graph.call_function(aten.permute.default, (node, list(order)))
            results[position].meta = {**node.meta, "val": node.meta["val"].permute(order)}
            orders.outputs.append((position, inverse(order)))
    output.args = (tuple(results),)
    graph.lint()
    module.recompile()
    return orders
