"""Checks inside subgraphs: how a loop or a conditional returns the results of checks in its body.

Each check in a body becomes one more result of the operator (bool, 0-d). Each branch of a
conditional reports True for the checks of the other branch. A loop carries the conjunction over all
its steps, and starts with True. Not here: the checks themselves (:mod:`.checks`). The condition
of a ``while_loop`` gets none.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..torch_internals.fake import detect_fake_mode
from ..torch_internals.operators import namespace
from .graphs import output_node, output_values

aten = namespace("aten")
higher_order = torch.ops.higher_order

Add = Callable[[GraphModule], tuple[GraphModule, list[Any]]]
"""Returns a copy of a graph with the checks as its last results, and what these stand for."""


def check_subgraphs(module: GraphModule, node: Node, add: Add) -> tuple[list[Node], list[Any]]:
    """Make ``node`` return the checks of its subgraphs. Returns nodes of these and what they stand for."""
    change = _CHANGES.get(node.target)
    return ([], []) if change is None else change(module, node, add)


def _cond(module: GraphModule, node: Node, add: Add) -> tuple[list[Node], list[Any]]:
    predicate, *branches, operands = _arguments(node)
    made = [add(_subgraph(module, branch)) for branch in branches]
    checks = [check for _, found in made for check in found]
    before = 0
    for branch, found in made:
        results = output_values(branch)
        mine = results[len(results) - len(found) :]
        rest = results[: len(results) - len(found)]
        missing = len(checks) - before - len(found)
        with branch.graph.inserting_before(output_node(branch)):
            other = [_true(branch.graph, node) for _ in range(before)]
            behind = [_true(branch.graph, node) for _ in range(missing)]
        _return(branch, [*rest, *other, *mine, *behind])
        before += len(found)
    replaced = [_attach(module, node, branch) for branch, _ in made]
    node.args = (predicate, *replaced, operands)
    return _reports(node, len(node.meta["val"]), len(checks)), checks


def _while_loop(module: GraphModule, node: Node, add: Add) -> tuple[list[Node], list[Any]]:
    condition, body, carried, additional = _arguments(node)
    body, checks = add(_subgraph(module, body))
    before = _subgraph(module, condition)
    condition = GraphModule(before, copy.deepcopy(before.graph))
    _carry(body, len(carried), len(checks))
    _inputs(condition, len(carried), len(checks))
    state = (*carried, *_beginning(node, len(checks)))
    node.args = (_attach(module, node, condition), _attach(module, node, body), state, additional)
    return _reports(node, len(carried), len(checks)), checks


def _scan(module: GraphModule, node: Node, add: Add) -> tuple[list[Node], list[Any]]:
    body, carried, sequences, additional = _arguments(node)
    count = len(carried)
    body, checks = add(_subgraph(module, body))
    _carry(body, count, len(checks))
    for user in list(node.users):  # the stacked results follow the carried ones
        position = _arguments(user)[1] if user.target is operator.getitem else -1
        if position >= count:
            user.args = (node, position + len(checks))
    state = [*carried, *_beginning(node, len(checks))]
    node.args = (_attach(module, node, body), state, sequences, additional)
    return _reports(node, count, len(checks)), checks


def _map(module: GraphModule, node: Node, add: Add) -> tuple[list[Node], list[Any]]:
    body, sequences, additional = _arguments(node)
    body, checks = add(_subgraph(module, body))
    node.args = (_attach(module, node, body), sequences, additional)
    count, calls = len(node.meta["val"]), sequences[0].meta["val"].shape[0]
    reports, found = _reports(node, count, len(checks)), []
    for report in reports:
        with node.graph.inserting_after(report):
            found.append(node.graph.call_function(aten.all.default, (report,)))
        found[-1].meta["val"] = report.meta["val"]
        report.meta["val"] = report.meta["val"].expand(calls)  # one for each call
    node.meta["val"] = (*node.meta["val"][:count], *(report.meta["val"] for report in reports))
    return found, checks


_CHANGES: dict[Any, Callable[[GraphModule, Node, Add], tuple[list[Node], list[Any]]]] = {
    higher_order.cond: _cond,
    higher_order.while_loop: _while_loop,
    higher_order.scan: _scan,
    higher_order.map_impl: _map,
}


def _arguments(node: Node) -> list[Any]:
    return list(node.args)


def _subgraph(module: GraphModule, reference: Any) -> GraphModule:
    return getattr(module, reference.target)


def _attach(module: GraphModule, node: Node, subgraph: GraphModule) -> Node:
    """Add ``subgraph`` to ``module`` under a new name; returns a reference to it, before ``node``."""
    subgraph.recompile()
    taken = sum(1 for name, _ in module.named_children() if name.startswith(f"{node.name}_checked_"))
    name = f"{node.name}_checked_{taken}"
    module.add_submodule(name, subgraph)
    with node.graph.inserting_before(node):
        return node.graph.get_attr(name)


def _carry(body: GraphModule, place: int, count: int) -> None:
    """Make a loop's body take the checks of earlier steps, and return their conjunction with its own."""
    before = _inputs(body, place, count)
    results = output_values(body)
    found = results[len(results) - count :]
    with body.graph.inserting_before(output_node(body)):
        both = [
            _call(body.graph, aten.logical_and.default, old, new)
            for old, new in zip(before, found, strict=True)
        ]
    rest = results[: len(results) - count]
    _return(body, [*rest[:place], *both, *rest[place:]])


def _inputs(module: GraphModule, place: int, count: int) -> list[Node]:
    """Add ``count`` placeholders (bool, 0-d) to a graph, at position ``place`` among the others."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    last = placeholders[place - 1]
    made = []
    for position in range(count):
        with module.graph.inserting_after(last):
            last = module.graph.placeholder(f"holds_{position}")
        last.meta["val"] = _fake_true(placeholders)
        made.append(last)
    return made


def _beginning(node: Node, count: int) -> list[Node]:
    with node.graph.inserting_before(node):
        return [_true(node.graph, node) for _ in range(count)]


def _reports(node: Node, place: int, count: int) -> list[Node]:
    """Add ``count`` bools to the results of ``node``, from position ``place`` on; returns nodes for them."""
    before = list(node.meta["val"])
    fakes = [_fake_true([node]) for _ in range(count)]
    node.meta["val"] = (*before[:place], *fakes, *before[place:])
    found = []
    last = node
    for position in range(count):
        with node.graph.inserting_after(last):
            last = node.graph.call_function(operator.getitem, (node, place + position))
        last.meta["val"] = fakes[position]
        found.append(last)
    return found


def _return(module: GraphModule, results: Sequence[Any]) -> None:
    output_node(module).args = (tuple(results),)


def _true(graph: Graph, like: Node) -> Node:
    node = graph.call_function(aten.full.default, ([], True), {"dtype": torch.bool})
    node.meta["val"] = _fake_true([like])
    return node


def _fake_true(nodes: Iterable[Node]) -> Any:
    """Return a fake bool (0-d) in the fake mode of the values of ``nodes``."""
    with detect_fake_mode([node.meta["val"] for node in nodes]) or torch.no_grad():
        return torch.full((), True)


def _call(graph: Graph, target: Any, *args: Node) -> Node:
    node = graph.call_function(target, args)
    node.meta["val"] = args[0].meta["val"]
    return node
