"""Compiles graphs with symbolic dimensions: one region for each concrete set of shapes, up to a limit."""

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
from ..compiler.support import UNKNOWN
from ..torch_internals import pytree
from ..torch_internals.fake import DynamicOutputShapeException, FakeTensorMode
from ..torch_internals.patches import tracing
from ..torch_internals.tracing import make_fx
from .options import Options
from .outputs import Aliasing
from .part import Run
from .records import GraphRecord
from .region import compile_region
from .unknown import KnownSizes, as_traced, is_unknown, known_form

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
"""The keys of a node's metadata that does not depend on shapes."""


def is_symbolic(module: GraphModule) -> bool:
    """Whether a placeholder is a symbolic number, or has a symbolic size or stride."""
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val", node.meta.get("example_value"))  # Dynamo calls it example_value
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return True
        if isinstance(value, torch.Tensor) and any(
            isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride())
        ):
            return True
    return False


class SpecializingRegion:
    """A symbolic graph that is compiled at call time for each new set of shapes.

    If there are more than ``options.specializations``, the least recently used one is dropped.
    """

    def __init__(
        self, module: GraphModule, options: Options, record: GraphRecord, aliasing: Aliasing
    ) -> None:
        self._module = module
        self._options = options
        self._record = record
        self._aliasing = aliasing
        unknown = [
            (position, node.meta["val"])
            for position, node in enumerate(module.graph.find_nodes(op="placeholder"))
            if is_unknown(node)
        ]
        self._unknown: list[tuple[int, Any]] = unknown
        """The inputs with sizes or numbers that depend on values: position and traced value."""
        self._regions: OrderedDict[Any, Run] = OrderedDict()
        self._lock = threading.Lock()  # protects the dictionary only; nothing else happens while it is held

    def __call__(self, inputs: list[Any]) -> list[Any]:
        key = tuple(map(form, inputs))
        if self._unknown:
            key = self._without_unknown(key)
        region = self._found(key)
        if region is None:
            with tracing():  # a caller that is tracing holds this lock already, so it cannot cause a deadlock
                region = self._found(key) or self._add(key, inputs)
        return region(inputs)

    def _without_unknown(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``key`` without the sizes and numbers that depend on values: they need no new region."""
        parts = list(key)
        for position, traced in self._unknown:
            parts[position] = known_form(parts[position], traced)
        return tuple(parts)

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
    """Return the part of the key that a region is specialized to, for one input.

    For a tensor that is its shape and strides. The key of a number keeps values apart that compare equal: 1,
    1.0 and True; 0.0 and -0.0.
    """
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.stride()
    return value if type(value) is int else (type(value), repr(value))


def _new_sizes(key: tuple[Any, ...]) -> str:
    sizes = [list(one[0]) if isinstance(one[0], tuple) else one[1] for one in key if isinstance(one, tuple)]
    return f"the first call of a graph with dynamic shapes for {', '.join(map(str, sizes))}"


def specialized(module: GraphModule, inputs: list[Any]) -> GraphModule:
    """Return ``module`` specialized to the shapes of ``inputs``; inputs that are numbers become constants.

    The result takes the same inputs, but does not use those that are numbers.
    """
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [
        mode.from_tensor(as_traced(value.detach(), node.meta["val"]), static_shapes=True)
        if isinstance(value, torch.Tensor) and not is_unknown(node)
        else value
        for value, node in zip(inputs, module.graph.nodes, strict=False)
    ]
    with tracing(), mended_operators(), mode, torch.no_grad():
        unknown = any(map(is_unknown, module.graph.nodes))
        if not unknown and any(isinstance(child, GraphModule) for child in module.children()):
            return _retraced(module, fakes)
        return _evaluated(module, fakes, mode, KnownSizes(module, inputs) if unknown else None)


def _evaluated(
    module: GraphModule, fakes: list[Any], mode: FakeTensorMode, known: KnownSizes | None
) -> GraphModule:
    """Copy the graph node by node; the metadata of each is its value for ``fakes``. Nothing is traced.

    Calls that eager PyTorch must run, because sizes depend on values, are copied as they are. ``known`` has
    the other sizes; it is None if there are no such calls.
    """
    graph, feed = Graph(), iter(fakes)
    made: dict[Node, Any] = {}
    """Maps each node to what replaces it: a node of the new graph, or a number."""

    def value_of(item: Any) -> Any:
        return item.meta["val"] if isinstance(item, Node) else item

    for node in module.graph.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), made.__getitem__)
        if node.op == "output":
            graph.output(*args)
            continue
        if known is not None and known.leaves_open(node):
            if node.op == "placeholder":
                next(feed)
            copy = graph.create_node(node.op, node.target, args, kwargs, node.name)
            copy.meta = {**node.meta, UNKNOWN: True, "val": known.settled(node)}
            made[node] = copy
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
            except DynamicOutputShapeException.get():  # the trace knew the values, so it knows the shape
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
    """Trace the module again as a whole, because higher-order operators decide how they call subgraphs."""
    traced = make_fx(module, tracing_mode="real")(*fakes)
    for node, value in zip(traced.graph.nodes, fakes, strict=False):
        node.meta.setdefault("val", value)
    settle_inplace_views(traced)  # matmul of a vector makes one
    return traced
