"""Indices out of range: what a program does with them, and how it reports them instead.

A program cannot raise. Without checks, reading at such an index reads the nearest
element (StableHLO's ``gather`` clamps) and writing there writes nothing (``scatter``
drops it). With ``config.check_indices`` a program returns one more bool per index
operand, and whoever calls it raises :class:`~torchstone.errors.IndexOutOfRange`.

Not here: how loops and conditions report what their bodies find (:mod:`.nested_index_checks`).
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from ..lowering import load
from ..lowering.registry import aten_overloads
from ..torch_internals.operators import namespace
from .graphs import bind, fake_arguments, location_text, output_node, output_values
from .nested_index_checks import check_subgraphs

aten = namespace("aten")
Arguments = Mapping[str, Any]
Axes = tuple[str, Sequence[int]]
"""An operand's name and some of its axes; the product of their sizes is a number of positions."""


@dataclass(frozen=True)
class Rule:
    """What an operator's index operand may hold, and what happens to the rest.

    ``operand`` is the schema parameter with the indices; ``extent`` says, from the fake
    arguments, which operand's axes they run over; ``negative`` allows counting from the
    end; ``effect`` is what the program does out of range; ``exempt`` is a value
    out of range that means something else.
    """

    operand: str
    extent: Callable[[Arguments], Axes]
    effect: str
    negative: bool = False
    exempt: int | None = None


def _along(given: Arguments) -> Axes:
    return "self", [given["dim"]] if given["self"].dim() else []


def _elements(given: Arguments) -> Axes:
    return "self", range(given["self"].dim())


def _rows(given: Arguments) -> Axes:
    return "weight" if "weight" in given else "self", [0]


def _classes(given: Arguments) -> Axes:
    return "self", [1 if given["self"].dim() > 1 else 0]


CLAMPED = "the nearest element is read"
DROPPED = "nothing is written"
_NEAREST = "the nearest class is read"
_NO_CLASS = "no class is the target, and the target's score is zero"

RULES: dict[Any, Rule] = {
    overload: rule
    for rule, names in (
        (Rule("index", _along, CLAMPED), ["gather.default", "index_select.default"]),
        (Rule("index", _elements, CLAMPED, negative=True), ["take.default"]),
        (
            Rule("indices", _rows, CLAMPED),
            ["embedding.default", "_embedding_bag.default", "_embedding_bag_forward_only.default"],
        ),
        (Rule("indices", _rows, CLAMPED), ["embedding_renorm.default"]),
        (
            Rule("target", _classes, _NEAREST),
            ["nll_loss_forward.default", "nll_loss2d_forward.default", "cross_entropy_loss.default"],
        ),
        (Rule("target", _classes, _NO_CLASS), ["multi_margin_loss.default"]),
        (
            Rule("target", _classes, _NEAREST, exempt=-1),
            ["multilabel_margin_loss_forward.default"],
        ),
        (
            Rule("index", _along, DROPPED),
            [
                "scatter.src",
                "scatter.value",
                "scatter.reduce",
                "scatter.value_reduce",
                "scatter_add.default",
                "scatter_reduce.two",
                "index_add.default",
                "index_reduce.default",
                "index_copy.default",
            ],
        ),
        (
            Rule("index", _along, DROPPED, negative=True),
            ["index_fill.int_Scalar", "index_fill.int_Tensor"],
        ),
        (Rule("index", _elements, DROPPED, negative=True), ["put.default"]),
        (Rule("indices", _along, CLAMPED, negative=True), ["index.Tensor", "_unsafe_index.Tensor"]),
        (Rule("indices", _along, DROPPED, negative=True), ["index_put.default", "_unsafe_index_put.default"]),
    )
    for overload in aten_overloads(names)
}
"""Operators with index operands; of a list of indices, ``extent`` is asked with each one's ``dim``."""


def add_index_checks(module: GraphModule) -> tuple[GraphModule, list[str]]:
    """A copy of ``module`` with one more result (bool, 0-d, true if in range) per index operand.

    Also what each of them stands for: operator, operand, range and the user's line.
    """
    checked = GraphModule(module, copy.deepcopy(module.graph))
    output = output_node(checked)
    graph, results, texts = checked.graph, output_values(checked), []
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        reports, found = check_subgraphs(checked, node, add_index_checks)
        results += reports
        texts += found
        rule = RULES.get(node.target)
        if rule is None:
            continue
        for index in _operands(node, rule):
            with graph.inserting_before(output):
                results.append(_in_range(graph, index))
            where = location_text(node) or "an unknown source line"
            texts.append(f"{node.target} at {where}: {index.describe()}")
    output.args = (tuple(results),)
    checked.recompile()
    return checked, texts


@dataclass(frozen=True)
class _Index:
    """An index operand: its node and name, the axes of ``source`` that it runs over, what is exempt."""

    node: Node
    name: str
    source: Node
    axes: Sequence[int]
    negative: bool
    exempt: int | None

    def describe(self) -> str:
        extent: Any = 1
        for axis in self.axes:
            extent = extent * self.source.meta["val"].shape[axis]
        return f"{self.name} must lie in [{-extent if self.negative else 0}, {extent})"


def _operands(node: Node, rule: Rule) -> Iterator[_Index]:
    """The index operands of ``node``; masks (bool, uint8) and probabilities are none."""
    lowering = load().get(node.target)
    if lowering is None:
        return
    given = bind(lowering, node.args, node.kwargs)
    fake = fake_arguments(given)
    operand = given[rule.operand]
    listed = isinstance(operand, (list, tuple))
    for position, index in enumerate(operand if listed else [operand]):
        if not isinstance(index, Node) or _is_no_index(index.meta["val"].dtype):
            continue
        source, axes = rule.extent({**fake, "dim": position} if listed else fake)
        name = f"{rule.operand}[{position}]" if listed else rule.operand
        exempt = rule.exempt if rule.exempt is not None else fake.get("ignore_index")
        yield _Index(index, name, given[source], axes, rule.negative, exempt)


def _is_no_index(dtype: torch.dtype) -> bool:
    return dtype in (torch.bool, torch.uint8) or dtype.is_floating_point


def _in_range(graph: Graph, index: _Index) -> Node:
    """Whether all elements of an index are in range, as nodes with metadata."""

    def call(target: Callable[..., Any], *args: Any) -> Node:
        node = graph.call_function(target, args)
        known = [arg.meta["val"] if isinstance(arg, Node) else arg for arg in args]
        with index.node.meta["val"].fake_mode:
            node.meta["val"] = target(*known)
        return node

    extent: Any = 1
    for axis in index.axes:
        size = index.source.meta["val"].shape[axis]
        if not isinstance(size, int):
            size = call(aten.sym_size.int, index.source, axis)
        extent = size if extent == 1 else call(operator.mul, extent, size)
    low = call(operator.neg, extent) if index.negative else 0
    fits = call(
        aten.logical_and.default,
        call(aten.ge.Scalar, index.node, low),
        call(aten.lt.Scalar, index.node, extent),
    )
    if index.exempt is not None:
        fits = call(aten.logical_or.default, fits, call(aten.eq.Scalar, index.node, index.exempt))
    return call(aten.all.default, fits)
