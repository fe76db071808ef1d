"""Graphs with symbolic dimensions: one compiled region per concrete set of shapes, bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import partial
from operator import attrgetter
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from .. import spans
from ..compiler.graphs import settle_inplace_views
from ..compiler.operators.tracing import mended_operators
from ..torch_internals import pytree
from ..torch_internals.fake import DynamicOutputShapeException, FakeTensorMode
from ..torch_internals.patches import tracing
from ..torch_internals.tensors import neg_view
from ..torch_internals.tracing import make_fx
from .options import Options
from .outputs import Aliasing
from .part import Run
from .records import GraphRecord
from .region import compile_region

_KEPT = (
    "stack_trace",
    "seq_nr",
    "custom",
    "nn_module_stack",
    "fwd_nn_module_stack",
    "partitioner_tag",
    "recompute",
    "ac_graph_id",
)
"""Metadata of a node that does not depend on shapes."""


def is_symbolic(module: GraphModule) -> bool:
    """True if a placeholder is a symbolic number or has a symbolic dimension."""
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))  # Dynamo's name for it
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
        if isinstance(value, torch.Tensor) and any(
            isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())
        ):
            return True
    return False


class SpecializingRegion:
    """A symbolic graph that is specialized at call time; least recently used shapes are dropped."""

    def __init__(
        self, module: GraphModule, options: Options, record: GraphRecord, aliasing: Aliasing
    ) -> None:
        self._module = module
        self._options = options
        self._record = record
        self._aliasing = aliasing
        self._regions: OrderedDict[Any, Run] = OrderedDict()
        self._lock = threading.Lock()  # for the dictionary alone: nothing else happens while it is held

    def __call__(self, inputs: list[Any]) -> list[Any]:
        key = tuple(map(form, inputs))
        region = self._found(key)
        if region is None:
            with tracing():  # the lock that a caller which traces has already: there is no other to wait for
                region = self._found(key) or self._add(key, inputs)
        return region(inputs)

    def _found(self, key: Any) -> Run | None:
        with self._lock:
            region = self._regions.get(key)
            if region is not None:
                self._regions.move_to_end(key)
            return region

    def _add(self, key: Any, inputs: list[Any]) -> Run:
        if self._regions:
            spans.recompiled(f"{self._record.kind} graph", lambda: _new_sizes(key))
        module = specialized(self._module, inputs)
        region = compile_region(module, self._options, self._record, self._aliasing)
        with self._lock:
            self._regions[key] = region
            while len(self._regions) > max(self._options.specializations, 1):
                self._regions.popitem(last=False)
        return region


def form(value: Any) -> Any:
    """What a region is specialized to.

    Numbers that compare equal may differ: 1, 1.0 and True; 0.0 and -0.0.
    """
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride()
    return value if type(value) is int else (type(value), repr(value))


def _new_sizes(key: tuple[Any, ...]) -> str:
    sizes = [list(one[0]) if isinstance(one[0], tuple) else one[1] for one in key if isinstance(one, tuple)]
    return f"the first call of a graph with dynamic shapes for {', '.join(map(str, sizes))}"


def specialized(module: GraphModule, inputs: list[Any]) -> GraphModule:
    """``module`` with the shapes of ``inputs``; numbers among them become constants of it.

    It has the same inputs; those that are numbers have no uses.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [
        mode.from_tensor(_as_traced(value.detach(), node.meta["val"]), static_shapes=True)
        if isinstance(value, torch.Tensor)
        else value
        for value, node in zip(inputs, module.graph.nodes, strict=False)
    ]
    with tracing(), mended_operators(), mode, torch.no_grad():
        if any(isinstance(child, GraphModule) for child in module.children()):
            return _retraced(module, fakes)
        return _evaluated(module, fakes, mode)


def _as_traced(tensor: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """``tensor`` with the lazy bits that the graph was traced with; the values are of no interest here.

    The bits of a gradient are not known when its graph is traced.
    """
    if tensor.is_conj() != traced.is_conj():
        tensor = tensor.conj()
    return tensor if tensor.is_neg() == traced.is_neg() else neg_view(tensor)


def _evaluated(module: GraphModule, fakes: list[Any], mode: FakeTensorMode) -> GraphModule:
    """Node by node, with what each makes of ``fakes`` as its metadata. Nothing is traced."""
    graph, feed = Graph(), iter(fakes)
    made: dict[Node, Any] = {}
    """What stands for a node: a node of the new graph, or a number."""

    def value_of(item: Any) -> Any:
        return item.meta["val"] if isinstance(item, Node) else item

    for node in module.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        if node.op == "output":
            graph.output(*args)
            continue
        if node.op == "placeholder":
            value = next(feed)
            copy = graph.placeholder(node.target)
        elif node.op == "get_attr":
            value = mode.from_tensor(attrgetter(node.target)(module), static_shapes=True)
            copy = graph.get_attr(node.target)
        else:
            values, options = pytree.tree_map_only(Node, value_of, (args, dict(kwargs)))
            try:
                value = node.target(*values, **options)
            except DynamicOutputShapeException.get():  # the trace knew its arguments' values
                fake = partial(mode.from_tensor, static_shapes=True)
                value = pytree.tree_map_only(torch.Tensor, fake, node.meta["val"])
            of_tensors = any(isinstance(made[one], Node) for one in node.all_input_nodes)
            if not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)) and not (
                value is None and of_tensors  # an assertion
            ):
                made[node] = value
                continue
            copy = graph.call_function(node.target, args, kwargs)
        copy.meta = {**{key: node.meta[key] for key in node.meta if key in _KEPT}, "val": value}
        made[node] = copy if isinstance(value, torch.Tensor) or node.op == "call_function" else value
    return GraphModule(module, graph)


def _retraced(module: GraphModule, fakes: list[Any]) -> GraphModule:
    """Traced as a whole, because higher-order operators decide how their subgraphs are called."""
    traced = make_fx(module, tracing_mode="real")(*fakes)
    for node, value in zip(traced.graph.nodes, fakes, strict=False):
        node.meta.setdefault("val", value)
    settle_inplace_views(traced)  # matmul of a vector makes one
    return traced
