"""Graph passes of the backend: missing metadata, mutations, outputs that alias what is mutated."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from torch.fx import Graph, GraphModule, Node

from ..compiler.graphs import output_node, output_values
from ..torch_internals import pytree
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import namespace
from .outputs import root

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


def extract_mutations(module: GraphModule, remade: Container[int]) -> dict[int, Node]:
    """Turn ``copy_(placeholder, value)`` into leading outputs; returns these by the placeholders' positions.

    What a graph computes from a placeholder, it computes from what that held before. So an output that
    shows a placeholder becomes a copy if the placeholder is written, unless it is among the ``remade``,
    which the caller gets as views of the input after it was written.
    """
    graph = module.graph
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    values = output_values(module)
    sources: dict[Node, Any] = {}
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is aten.copy_.default and node.args[0] in inputs:
            target, source = node.args[:2]
            sources[target] = _fitted(graph, node, target, source)
            node.replace_all_uses_with(sources[target])
            values = [sources[target] if value is node else value for value in values]
            graph.erase_node(node)
    outputs = [*sources.values(), *values]
    output = output_node(module)
    with graph.inserting_before(output):
        for place, value in enumerate(outputs):
            if place - len(sources) not in remade and isinstance(value, Node) and root(value) in sources:
                outputs[place] = graph.call_function(aten.clone.default, (value,))
                outputs[place].meta = {**value.meta, "val": value.meta["val"].clone()}
    output.args = (tuple(outputs),)
    graph.lint()
    module.recompile()
    return {inputs.index(target): source for target, source in sources.items()}


def _fitted(graph: Graph, node: Node, target: Node, source: Any) -> Any:
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
