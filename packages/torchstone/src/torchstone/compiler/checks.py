"""Adds checks to a graph: one more result (bool, 0-d, true if all is right) per check of eager PyTorch.

A program cannot raise, so its caller looks at these results and raises. A question is a
PyTorch function of tensors, which is traced to nodes at the end of the graph. Not
here: the questions about indices (:mod:`.index_checks`) and values
(:mod:`.value_checks`), and how loops and conditionals return the results of checks in their
bodies (:mod:`.nested_checks`).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..signature import CheckKind
from ..torch_internals import pytree
from ..torch_internals.fake import detect_fake_mode
from ..torch_internals.tracing import make_fx
from .graphs import location_text, output_node, output_values
from .index_checks import index_questions
from .nested_checks import check_subgraphs
from .normalize import decompositions
from .questions import Question
from .value_checks import value_questions


@dataclass(frozen=True)
class Check:
    """The meaning of one result: its kind in the signature, and operator, line and fault for the error."""

    kind: CheckKind
    text: str


def add_checks(module: GraphModule, *, indices: bool, values: bool) -> tuple[GraphModule, list[Check]]:
    """Return a copy of ``module`` with one more result per check, and what these stand for."""

    def add(module: GraphModule) -> tuple[GraphModule, list[Check]]:
        checked = GraphModule(module, copy.deepcopy(module.graph))
        output = output_node(checked)
        results, checks = output_values(checked), []
        for node in list(checked.graph.nodes):
            if node.op != "call_function":
                continue
            reports, found = check_subgraphs(checked, node, add)
            results += reports
            checks += found
            for kind, question in _questions(node, indices, values):
                with checked.graph.inserting_before(output):
                    answer = _answer(checked.graph, node, question)
                if answer is not None:
                    line = location_text(node)
                    what = f"{node.target} at {line}" if line else f"{node.target}"
                    results.append(answer)
                    checks.append(Check(kind, f"{what}: {question.text}"))
        output.args = (tuple(results),)
        checked.recompile()
        return checked, checks

    return add(module)


def _questions(node: Node, indices: bool, values: bool) -> Iterator[tuple[CheckKind, Question]]:
    if indices:
        yield from (("index_check", one) for one in index_questions(node))
    if values:
        yield from (("value_check", one) for one in value_questions(node))


def _answer(graph: Graph, about: Node, question: Question) -> Node | None:
    """Add nodes that answer a question about a call; returns the answer, None if there is nothing to ask."""
    leaves, tree = pytree.tree_flatten({name: _spread(graph, one) for name, one in question.operands.items()})
    places = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Node) and isinstance(leaf.meta["val"], torch.Tensor)
    ]
    known = [leaf.meta["val"] if isinstance(leaf, Node) else leaf for leaf in leaves]
    nodes = [leaves[place] for place in places]

    def asked(*tensors: torch.Tensor) -> torch.Tensor | None:
        for place, tensor in zip(places, tensors, strict=True):
            known[place] = tensor
        found: torch.Tensor | None = question.holds(**pytree.tree_unflatten(known, tree))
        return None if found is None else found.all()

    fakes = [node.meta["val"] for node in nodes]
    mode = detect_fake_mode(fakes)
    symbolic = mode is not None and mode.shape_env is not None
    with torch.no_grad():
        traced = make_fx(
            asked,
            decomposition_table=decompositions(),
            tracing_mode="symbolic" if symbolic else "fake",
            _allow_non_fake_inputs=True,
        )(*fakes)
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    copies = dict(zip(placeholders, nodes, strict=True))
    answer = graph.graph_copy(traced.graph, copies)
    for made in set(copies.values()) - set(nodes):
        made.meta["stack_trace"] = about.meta.get("stack_trace")
    return answer if isinstance(answer, Node) else None


def _spread(graph: Graph, operand: Any) -> Any:
    """Return one node for each result of a node with several; anything else is returned as it is."""
    if not isinstance(operand, Node) or not isinstance(operand.meta.get("val"), (tuple, list)):
        return operand
    found = []
    for position, value in enumerate(operand.meta["val"]):
        found.append(graph.call_function(operator.getitem, (operand, position)))
        found[-1].meta["val"] = value
    return tuple(found)
