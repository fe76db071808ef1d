"""The value of every node of a graph: in eager PyTorch, in float64, and on an engine.

Not here: the graphs (:mod:`.roads`), and the verdict on a difference (:mod:`.arbiter`).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from ...compiler.graphs import output_node, output_values
from ...compiler.support import REPLAY_RNG, draws
from ...lowering import load
from ...torch_internals import pytree
from ...torch_internals.operators import namespace
from ..operators import WIDER, compiled_graph, float64_by_default, to_tensor, widened

aten = namespace("aten")
_HANDED_ON = (aten.clone.default, aten.detach.default, aten.alias.default)

Tensor = torch.Tensor
Values = dict[Node, Any]
"""The value of each node: a tensor, or a list of tensors for an operator with several results."""


@dataclass(frozen=True)
class Piece:
    """A functional graph of operators, inputs for its placeholders, and a seed for its random numbers."""

    module: GraphModule
    inputs: Sequence[Any]
    seed: Tensor

    @property
    def nodes(self) -> list[Node]:
        """The nodes that stand for one tensor that an operator returned, in order."""
        return [node for node in self.module.graph.nodes if is_result(node)]

    @property
    def placeholders(self) -> dict[Node, Any]:
        return dict(zip(self.module.graph.find_nodes(op="placeholder"), self.inputs, strict=True))

    @property
    def given(self) -> Values:
        """The values that the graph starts from: those of its inputs and its constants."""
        constants = self.module.graph.find_nodes(op="get_attr")
        return {**self.placeholders, **{node: attribute(self.module, node) for node in constants}}

    def on_engine(self, engine: str | None = None) -> dict[Node, Tensor]:
        """Return every node's value, from one program that has all of them as results."""
        return self._run(self.nodes, engine)

    def results_on(self, engine: str | None = None) -> dict[Node, Tensor]:
        """Return the values of the graph's own results, from the program that users run."""
        return self._run([node for node in output_values(self.module) if _is_result(node)], engine)

    def _run(self, nodes: Sequence[Node], engine: str | None) -> dict[Node, Tensor]:
        module = copy.deepcopy(self.module)
        found = {node.name: node for node in module.graph.nodes}
        output_node(module).args = (tuple(found[node.name] for node in nodes),)
        module.recompile()
        given = [one for node, one in self.placeholders.items() if isinstance(one, Tensor)]
        results = compiled_graph(module, given, engine)(self.seed.numpy())
        return {
            node: laid_out(to_tensor(one), node.meta["val"]) for node, one in zip(nodes, results, strict=True)
        }

    def in_eager(self, drawn: Mapping[Node, Tensor], known: Mapping[Node, Tensor] | None = None) -> Values:
        """Return every node's value in eager PyTorch; random values are taken from ``drawn``.

        ``known`` has values for some placeholders, in place of those in ``inputs``.
        """
        return self._evaluated(drawn, {**self.placeholders, **(known or {})}, _same, _same)

    def in_float64(self, drawn: Mapping[Node, Tensor], known: Mapping[Node, Tensor] | None = None) -> Values:
        """Return every node's value, computed in float64; None for a node that eager cannot compute so."""
        with float64_by_default():
            return self._evaluated(drawn, {**self.placeholders, **(known or {})}, widened, wider_dtype)

    def _evaluated(
        self,
        drawn: Mapping[Node, Tensor],
        given: Mapping[Node, Any],
        of_tensor: Callable[[Tensor], Tensor],
        of_dtype: Callable[[torch.dtype], torch.dtype],
    ) -> Values:
        values: Values = {}
        for node in self.module.graph.nodes:
            if node.op == "placeholder":
                values[node] = _mapped(given[node], of_tensor, of_dtype)
            elif node.op == "get_attr":
                values[node] = _mapped(attribute(self.module, node), of_tensor, of_dtype)
            elif node in drawn:
                values[node] = of_tensor(drawn[node])
            elif node.op == "call_function":
                values[node] = None if is_drawn(node) else _called(node, values, of_dtype)
        return values


def local_values(
    node: Node, values: Mapping[Node, Any], *, wide: bool, change: Callable[[Tensor], Tensor] | None = None
) -> Any:
    """Return what ``node`` alone computes from ``values`` in eager PyTorch; None if eager cannot.

    With ``wide`` it computes in float64. ``change`` is applied to the operands first. Of an operator with
    several results, the one that ``node`` stands for is returned.
    """
    caller, index = called_by(node)
    of_dtype = wider_dtype if wide else _same
    given = {}
    for one in caller.all_input_nodes:
        value = _mapped(values[one], widened if wide else _same, of_dtype)
        given[one] = _mapped(value, change, _same) if change is not None else value
    with float64_by_default() if wide else nullcontext():
        found = _called(caller, given, of_dtype)
    return found if index is None or found is None else found[index]


def called_by(node: Node) -> tuple[Node, int | None]:
    """Return the operator that ``node`` is a result of, and the result's index if it has several."""
    if node.target is operator.getitem:
        source, index = node.args
        if isinstance(source, Node) and not isinstance(source.meta.get("val"), Tensor):
            return source, cast(int, index)
    return node, None


def is_result(node: Node) -> bool:
    return node.op == "call_function" and isinstance(node.meta.get("val"), Tensor)


def _is_result(value: Any) -> bool:
    return isinstance(value, Node) and is_result(value)


def source_of(node: Node) -> Node:
    """Return the node whose value ``node`` passes on unchanged (by clone, detach or alias)."""
    while node.target in _HANDED_ON and isinstance(node.args[0], Node) and is_result(node.args[0]):
        node = node.args[0]
    return node


def is_drawn(node: Node) -> bool:
    """Whether a node's value is random, so that eager PyTorch would draw another one."""
    caller, _ = called_by(node)
    return caller.target is REPLAY_RNG or draws(caller, load())


def attribute(module: GraphModule, node: Node) -> Any:
    return operator.attrgetter(str(node.target))(module)


def piece_of(nodes: Sequence[Node], module: GraphModule, values: Mapping[Node, Any], seed: Tensor) -> Piece:
    """Return ``nodes`` of ``module`` as a separate graph; its inputs are the ``values`` that it takes."""
    inside = set(nodes)
    graph = Graph()
    made: dict[Node, Node] = {}
    inputs: list[Any] = []
    for node in nodes:
        for source in node.all_input_nodes:
            if source in inside or source in made:
                continue
            if source.op == "get_attr" and not isinstance(values.get(source), Tensor):
                made[source] = graph.node_copy(source)
                continue
            made[source] = graph.placeholder(f"input{len(inputs)}")
            made[source].meta = {"val": source.meta.get("val", values[source])}
            inputs.append(values[source])
    for node in nodes:
        made[node] = graph.node_copy(node, lambda one: made[one])
    graph.output(tuple(made[node] for node in nodes if is_result(node)))
    return Piece(GraphModule(module, graph), inputs, seed)


def laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return ``tensor`` with the strides of ``like``; operators that address memory depend on them."""
    if tensor.shape != like.shape or tensor.stride() == like.stride() or not tensor.numel():
        return tensor
    expanded = [step == 0 and size > 1 for step, size in zip(like.stride(), like.shape, strict=True)]
    if any(expanded):
        first = tensor[tuple(slice(0, 1) if one else slice(None) for one in expanded)]
        return first.expand(like.shape) if torch.equal(first.expand(like.shape), tensor) else tensor
    return torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype).copy_(tensor)


def wider_dtype(dtype: torch.dtype) -> torch.dtype:
    return WIDER.get(dtype, dtype)


def _same(value: Any) -> Any:
    return value


def _mapped(value: Any, of_tensor: Callable[[Tensor], Any], of_dtype: Callable[[torch.dtype], Any]) -> Any:
    value = pytree.tree_map_only(Tensor, of_tensor, value)
    return pytree.tree_map_only(torch.dtype, of_dtype, value)


def _called(node: Node, values: Mapping[Node, Any], of_dtype: Callable[[torch.dtype], Any]) -> Any:
    if any(values[one] is None for one in node.all_input_nodes):
        return None
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda one: values[one])
    args, kwargs = _mapped((args, kwargs), _same, of_dtype)
    target: Any = node.target
    try:
        with torch.no_grad():
            return target(*args, **kwargs)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError):
        return None  # eager PyTorch lacks the kernel, for instance in float64
