"""Runs graphs with unsupported operators: compiled parts, with eager operators between them."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..compiler.graphs import output_node
from ..compiler.support import unsupported_reason
from ..lowering import load
from .part import Run
from .passes import DIVIDING_PART, Region
from .unknown import is_number, is_unknown
from .watching import compile_part


class _Lowerable(OperatorSupportBase):
    """Tells the partitioner which nodes the registry can lower."""

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        if node.op == "get_attr" and _is_subgraph(node):  # a part holds the subgraphs that its calls take
            return all(self.is_node_supported(submodules, user) for user in node.users)
        if node.op != "call_function" or is_unknown(node):
            return False
        return unsupported_reason(node, load()) is None


class MixedGraph:
    """A functional graph whose supported parts, each as large as possible, are compiled programs."""

    def __init__(self, region: Region) -> None:
        self._outputs = region.outputs
        _separate_subgraphs(region.module)
        partitioner = CapabilityBasedPartitioner(
            region.module, _Lowerable(), allows_single_node_partition=True
        )
        self._module = partitioner.fuse_partitions(partitioner.propose_partitions(), prefix="compiled_")
        _move_checks_up(self._module)
        self._parts: dict[str, Run] = {}
        for node in self._module.graph.find_nodes(op="call_module"):
            part = getattr(self._module, node.target)
            _listed_output(part)
            inner = Region(part, region.options, region.record)
            DIVIDING_PART.run(inner)
            self._parts[str(node.target)] = compile_part(inner)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        with torch.no_grad():
            results = _Runner(self._module, self._parts).run(*inputs)
        return self._outputs.assemble(inputs, results)


def _is_subgraph(node: Node) -> bool:
    """Whether a node reads a subgraph, which control flow takes."""
    return isinstance(attrgetter(str(node.target))(node.graph.owning_module), GraphModule)


def _separate_subgraphs(module: GraphModule) -> None:
    """Give each call its own nodes for the subgraphs that it takes, so that they are in the same part."""
    graph = module.graph
    for node in filter(_is_subgraph, graph.find_nodes(op="get_attr")):
        for user in list(node.users)[1:]:
            with graph.inserting_before(user):
                copy = graph.get_attr(node.target)
            copy.meta = dict(node.meta)
            user.replace_input_with(node, copy)


def _move_checks_up(module: GraphModule) -> None:
    """Make checks of sizes that depend on values run before anything that relies on them."""
    graph = module.graph
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if is_unknown(node) and node.op == "call_function" and (value is None or is_number(value)):
            last = max(node.all_input_nodes, default=None)  # nodes compare by their place in the graph
            if last is not None:
                last.append(node)
    module.recompile()


def _listed_output(module: GraphModule) -> None:
    """Make a part with one output, which returns the bare value, return a list of one."""
    output = output_node(module)
    if isinstance(output.args[0], Node):
        output.args = ((output.args[0],),)


class _Runner(Interpreter):
    """An interpreter that calls compiled parts instead of their submodules."""

    def __init__(self, module: GraphModule, parts: Mapping[str, Run]) -> None:
        super().__init__(module)
        self._parts = parts

    def call_module(self, target: Any, args: Any, kwargs: Any) -> Any:
        part = self._parts.get(str(target))
        if part is None:
            return super().call_module(target, args, kwargs)
        results = part(list(args))
        return results[0] if len(results) == 1 else results
