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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Interpreter, Node
from torch.fx.traceback import preserve_node_meta

from ...torch_internals.tracing import free_unbacked_symbols, make_fx
from ..checks import Check
from ..graphs import operator_nodes, writes
from ..normalize import decompositions
from . import attention, indices, losses, orders, reductions, selections, shapes  # noqa: F401  # their rules
from .calls import run_nodes
from .sizes import Trace, unknown_in

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
    trace = Trace(exported.range_constraints)
    placeholders = graph.find_nodes(op="placeholder")
    tensors = [node for node in placeholders if isinstance(node.meta.get("val"), Tensor)]
    traced = _traced(
        lambda *given: _run(trace, exported.graph_module, dict(zip(tensors, given, strict=True))), tensors
    )
    if any(writes(node.target) for node in operator_nodes(traced)):
        # Expansions of composite operators write into what they have made.
        traced = _traced(torch.func.functionalize(Interpreter(traced).run), tensors)
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


def _traced(function: Callable[..., Any], inputs: Sequence[Node]) -> GraphModule:
    with torch.no_grad(), preserve_node_meta():
        module: GraphModule = make_fx(
            function,
            decomposition_table=decompositions(),
            tracing_mode="symbolic",
            _allow_non_fake_inputs=True,
        )(*(node.meta["val"] for node in inputs))
    return module


def _run(trace: Trace, module: GraphModule, inputs: Mapping[Node, Tensor]) -> list[Tensor]:
    """The results of the graph, then the counts of the sizes that they have, then answers to checks."""
    run_nodes(trace, module, inputs)
    graph = module.graph
    results = [one for one in _results(graph) if isinstance(one.meta.get("val"), Tensor)]
    return [
        *(trace.values[one] for one in results),
        *(trace.counts[u] for u in _returned(graph)),
        *trace.answers,
    ]


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
