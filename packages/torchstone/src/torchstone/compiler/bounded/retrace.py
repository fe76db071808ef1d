"""Sizes that depend on values, where a bound of them is known: padded tensors and their true sizes.

``x.nonzero()`` has as many rows as values say, and at most as many as ``x`` has elements. :func:`bounded`
traces such a graph again on tensors that are as large as the bound: the elements that PyTorch's tensor has
come first along each dimension, and *padding* follows. Beside it each such size is a 0-d tensor, its
*count*. What each operator does to keep padding out of real elements is in :mod:`.calls` and the modules of
rules. The program returns the padded tensors and the counts, and whoever calls it cuts the padding off.

PyTorch's symbol for such a size (``u0``) stays the name of it: what ``torch._check`` demands of it becomes a
check of the program's values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.fx.traceback import preserve_node_meta, set_current_meta

from ...torch_internals.tracing import free_unbacked_symbols, make_fx
from ..checks import Check
from ..graphs import is_symbolic_number
from ..normalize import decompositions
from . import indices, reductions, selections, shapes  # noqa: F401  # their rules
from .calls import call
from .sizes import NoForm, Trace, unknown_in

Tensor = torch.Tensor


@dataclass
class Bounded:
    """What :func:`bound_sizes` adds to a program: sizes by symbol, in the order of their results.

    ``bounds`` maps each symbol to its bound, a number or an expression of other symbols; a number that is
    not a size has None.
    """

    module: GraphModule
    bounds: dict[str, int | str | None] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)


def unknown_symbols(exported: ExportedProgram) -> set[str]:
    """The names of numbers and sizes in the program that depend on values."""
    return {str(one) for one in exported.range_constraints if free_unbacked_symbols(one)}


def bounded(exported: ExportedProgram) -> Bounded:
    """The program's graph on padded tensors; raises :class:`NoForm`, with the node as its second argument."""
    graph = exported.graph_module.graph
    trace = Trace(exported)
    placeholders = graph.find_nodes(op="placeholder")
    tensors = [node for node in placeholders if isinstance(node.meta.get("val"), Tensor)]
    with torch.no_grad(), preserve_node_meta():
        traced = make_fx(
            lambda *given: _run(trace, graph, dict(zip(tensors, given, strict=True))),
            decomposition_table=decompositions(),
            tracing_mode="symbolic",
            _allow_non_fake_inputs=True,
        )(*(node.meta["val"] for node in tensors))
    made = Graph()
    copies = {}
    for node in placeholders:
        copies[node] = made.node_copy(node)
    own = dict(zip(traced.graph.find_nodes(op="placeholder"), (copies[one] for one in tensors), strict=True))
    results: Any = made.graph_copy(traced.graph, own)
    made.output(tuple(results))
    module = GraphModule(traced, made)
    module.graph.eliminate_dead_code()
    module.recompile()
    bounds = {str(symbol): _expression(trace.bounds[symbol]) for symbol in _returned(graph)}
    return Bounded(module, bounds, trace.checks)


def _run(trace: Trace, graph: Graph, inputs: Mapping[Node, Tensor]) -> list[Tensor]:
    """The results of the graph, then the counts of the sizes that they have, then answers to checks."""
    for node, tensor in inputs.items():
        trace.values[node] = tensor
        for size in tensor.shape:
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                trace.sizes.setdefault(size.node.expr, size)
    for node in graph.nodes:
        if node.op != "call_function" or is_known_number(node):
            continue
        with set_current_meta(node):
            try:
                trace.values[node] = call(trace, node)
            except NoForm as error:
                raise NoForm(str(error), node) from error
            except Exception as error:  # whatever PyTorch raises, it is about this call
                said = next(iter(str(error).splitlines()), "")
                raise NoForm(f"its padded form fails: {type(error).__name__}: {said}", node) from error
    results = [one for one in _results(graph) if isinstance(one.meta.get("val"), Tensor)]
    return [
        *(trace.values[one] for one in results),
        *(trace.counts[u] for u in _returned(graph)),
        *trace.answers,
    ]


def is_known_number(node: Node) -> bool:
    """Whether the node computes a number from sizes, which PyTorch's symbols say."""
    return is_symbolic_number(node) and node.target is not torch.ops.aten._local_scalar_dense.default


def _results(graph: Graph) -> list[Node]:
    """The nodes that the graph returns."""
    returned: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    return [one for one in returned if isinstance(one, Node)]


def _returned(graph: Graph) -> list[sympy.Symbol]:
    """The symbols of sizes that the results have."""
    found: dict[sympy.Symbol, None] = {}
    for node in _results(graph):
        found.update(dict.fromkeys(sorted(unknown_in(node.meta.get("val")), key=str)))
    return list(found)


def _expression(bound: Any) -> int | str | None:
    return str(bound.node.expr) if isinstance(bound, torch.SymInt) else bound
