"""Sizes that depend on values, if a bound is known: padded tensors and their true sizes.

The number of rows of ``x.nonzero()`` depends on the values in ``x``, and is at most the number of elements
of ``x``. :func:`bounded` traces such a graph again on tensors that are as large as the bound. Along each
dimension, the real elements come first and *padding* follows. The true size is a separate 0-d tensor, the
*count*. How each operator keeps padding out of real elements is in :mod:`.calls` and the modules of rules.
The program returns the padded tensors and the counts, and its caller cuts off the padding.

Such a size keeps PyTorch's symbol (``u0``) as its name. What ``torch._check`` demands of the size becomes a
check in the program.
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
    """The result of :func:`bounded`: the graph on padded tensors, the bounds of sizes, and the checks.

    ``bounds`` maps each symbol, in the order of the results, to its bound: a number or an expression of
    other symbols. A number that is not a size has None.
    """

    module: GraphModule
    bounds: dict[str, int | str | None] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)


def unknown_symbols(exported: ExportedProgram) -> set[str]:
    """Return the names of the numbers and sizes in the program that depend on values."""
    return {str(one) for one in exported.range_constraints if free_unbacked_symbols(one)}


def bounded(exported: ExportedProgram) -> Bounded:
    """Trace the graph on padded tensors; raises :class:`NoForm` with the node as its second argument."""
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
    """Return the results of the graph, then the counts of their sizes, then the answers to checks."""
    run_nodes(trace, module, inputs)
    graph = module.graph
    results = [one for one in _results(graph) if isinstance(one.meta.get("val"), Tensor)]
    return [
        *(trace.values[one] for one in results),
        *(trace.counts[u] for u in _returned(graph)),
        *trace.answers,
    ]


def _results(graph: Graph) -> list[Node]:
    """Return the nodes that the graph returns."""
    returned: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    return [one for one in returned if isinstance(one, Node)]


def _returned(graph: Graph) -> list[sympy.Symbol]:
    """Return the symbols of sizes and numbers in the results that depend on values."""
    found: dict[sympy.Symbol, None] = {}
    for node in _results(graph):
        found.update(dict.fromkeys(sorted(unknown_in(node.meta.get("val")), key=str)))
    return list(found)


def _expression(bound: Any) -> int | str | None:
    return str(bound.node.expr) if isinstance(bound, torch.SymInt) else bound
