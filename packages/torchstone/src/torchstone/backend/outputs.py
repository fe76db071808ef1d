"""Puts a graph's outputs together from inputs, constants, engine results, and views of any of these.

The engine never computes a view. PyTorch's own view operators make each view from its base tensor, so that it
shares that tensor's memory and has the strides and offset that eager PyTorch gives it. AOTAutograd makes the
views that the caller gets, from the graph's outputs.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ..compiler.graphs import output_node, output_values
from ..torch_internals.operators import OpOverload
from .layouts import memory_order
from .unknown import is_unknown


def viewed(node: Node) -> Node | None:
    """Return the node that ``node`` is a view of; None if it is not a view of one node alone."""
    return shown(node) if len(node.all_input_nodes) == 1 else None


def shown(node: Node) -> Node | None:
    """Return the node that ``node`` is a view of, as :func:`viewed`, also if sizes of the view are nodes."""
    if node.op != "call_function" or not node.args or not isinstance(node.args[0], Node):
        return None
    source = node.args[0]
    if node.target is operator.getitem:  # one of the views that ``split`` and ``unbind`` make
        return source if _is_view(source.target) else None
    return source if _is_view(node.target) else None


def _is_view(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.is_view


def views(node: Node) -> list[Node]:
    """Return the chain of views that ends with ``node``, the first view first; empty if it is not a view."""
    chain: list[Node] = []
    source = viewed(node)
    while source is not None:
        chain.insert(0, node)
        node, source = source, viewed(source)
    return chain


def root(node: Node) -> Node:
    """Return the node that owns the memory of ``node``: the base of its views, or ``node`` itself."""
    chain = views(node)
    return node if not chain else chain[0].all_input_nodes[0]


def memory_owner(node: Node) -> Node:
    """Return the node that owns the memory of ``node``, also through views whose sizes depend on values."""
    while (source := shown(node)) is not None:
        node = source
    return node


class Remade(NamedTuple):
    """The base from which AOTAutograd makes an output anew: the input or the output at ``position``."""

    of_input: bool
    position: int


@dataclass(frozen=True)
class Aliasing:
    """How AOTAutograd treats the outputs of a graph.

    ``remade`` maps the outputs that it makes anew, as views, to their bases. ``written`` maps the inputs that
    it writes after the call to the outputs that have their new values.
    """

    remade: Mapping[int, Remade]
    written: Mapping[int, int]

    def behind(self, count: int) -> Aliasing:
        """Return a copy for the same graph with ``count`` more outputs in front of the others."""
        remade = {
            place + count: base if base.of_input else Remade(False, base.position + count)
            for place, base in self.remade.items()
        }
        return Aliasing(remade, {place: output + count for place, output in self.written.items()})


NO_ALIASING = Aliasing({}, {})


class ViewToMake:
    """A placeholder for an output that AOTAutograd makes anew as a view of another tensor.

    It has the attributes that AOTAutograd reads from such an output (``gen_alias_from_base`` in
    torch/_functorch/_aot_autograd/functional_utils.py). A real view would not be enough: if its dtype differs
    from that of its base, or if autograd is off, it records only sizes, strides and offset.
    """

    __slots__ = ("_base", "_views", "shape")

    def __init__(self, base: Any, shape: torch.Size, views: Sequence[Callable[[Any], Any]]) -> None:
        self._base = base
        self._views = views
        self.shape = shape

    def _view_func(self, base: Any) -> Any:
        for view in self._views:
            base = view(base)
        return base


Late = Callable[[list[Any]], Callable[[Any], Any]]
"""Makes a function that makes a view, from a list that has the sizes of the view."""


@dataclass(frozen=True)
class Outputs:
    """The recipe that puts a graph's outputs together.

    It makes a list of tensors: the graph's inputs at the positions ``inputs``, then the engine's results
    (``results`` is their count), then one view for each of ``steps``, a pair of an earlier tensor's index and
    the function that makes the view. ``sources`` has a pair for each output: True and an index into this
    list, or False and a constant. ``remade`` lists the outputs that AOTAutograd makes anew: position, base,
    shape and views. ``sized`` lists those whose sizes depend on values: functions make the views from the
    list, which has these sizes too.
    """

    inputs: list[int]
    results: int
    steps: list[tuple[int, Callable[[Any], Any]]]
    sources: list[tuple[bool, Any]]
    remade: list[tuple[int, Remade, torch.Size, Sequence[Callable[[Any], Any]]]]
    sized: list[tuple[int, Remade, Sequence[Late]]] = field(default_factory=list)

    @cached_property
    def plain(self) -> bool:
        """Whether the outputs are exactly the engine's results, in the same order."""
        engine_only = not self.inputs and not self.remade and not self.sized
        return engine_only and self.sources == [(True, i) for i in range(self.results)]

    def assemble(self, inputs: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        tensors = [*(inputs[position] for position in self.inputs), *results]
        for source, view in self.steps:
            tensors.append(view(tensors[source]))
        outputs = [tensors[value] if among else value for among, value in self.sources]
        for position, (of_input, base), shape, views in self.remade:
            outputs[position] = ViewToMake((inputs if of_input else outputs)[base], shape, views)
        for position, (of_input, base), makers in self.sized:
            views = [view_of(tensors) for view_of in makers]
            owner = (inputs if of_input else outputs)[base]
            outputs[position] = ViewToMake(owner, outputs[position].shape, views)
        return outputs


def split_outputs(
    module: GraphModule, aliasing: Aliasing = NO_ALIASING, mutated: Mapping[int, Node] | None = None
) -> Outputs:
    """Reduce the graph's outputs to those that the engine must compute; return how to make all outputs.

    ``mutated`` maps the positions of inputs that the graph writes to the nodes with their new values.
    """
    graph = module.graph
    inputs = graph.find_nodes(op="placeholder")
    position = {node: i for i, node in enumerate(inputs)}
    values = output_values(module)
    new = {position: values[output] for position, output in aliasing.written.items()} | dict(mutated or {})
    made: list[tuple[int, Remade, torch.Size, Sequence[Callable[[Any], Any]]]] = []
    sized: list[tuple[int, Remade, list[Node]]] = []
    for place, base in aliasing.remade.items():
        bases = [(inputs if base.of_input else values)[base.position]]
        if base.of_input and base.position in new:
            bases.append(new[base.position])  # the value that the input has when the view is made
        chain = next((found for one in bases if (found := _views_of(one, values[place])) is not None), None)
        if chain is not None and any(map(is_unknown, chain)):
            sized.append((place, base, chain))
        elif chain is not None:
            made.append((place, base, values[place].meta["val"].shape, [_applied(node) for node in chain]))
    for place, *_ in made:
        values[place] = None
    numbers = [one for *_, chain in sized for node in chain for one in node.all_input_nodes[1:]]
    tensors = [value for value in dict.fromkeys([*values, *numbers]) if _is_made(value)]
    roots = {value: root(value) for value in tensors}
    shared = Counter(roots.values())
    for value, whole in roots.items():
        alone = whole not in position and shared[whole] == 1 and not is_unknown(value)
        if alone and _is_all_of(value, whole):
            roots[value] = value  # no other output shares the memory, so the value may be computed directly
    owners = dict.fromkeys(roots.values())
    given = [owner for owner in owners if owner in position]
    computed = [owner for owner in owners if owner not in position]
    place_of = {owner: i for i, owner in enumerate((*given, *computed))}
    steps: list[tuple[int, Callable[[Any], Any]]] = []
    for node in (node for value, owner in roots.items() if value is not owner for node in views(value)):
        if node not in place_of:
            steps.append((place_of[node.all_input_nodes[0]], _applied(node)))
            place_of[node] = len(place_of)
    sources = [
        (True, place_of[value])
        if isinstance(value, Node) and value in place_of
        else (False, value.meta.get("val") if isinstance(value, Node) else value)
        for value in values
    ]
    output_node(module).args = (tuple(computed),)
    late: list[tuple[int, Remade, Sequence[Late]]] = [
        (place, base, [_applied_late(node, place_of) for node in chain]) for place, base, chain in sized
    ]
    return Outputs([position[owner] for owner in given], len(computed), steps, sources, made, late)


def _views_of(base: Any, value: Any) -> list[Node] | None:
    """Return the views that lead from ``base`` to ``value``; None if ``value`` is not a view of ``base``."""
    if not _is_tensor(base) or not _is_tensor(value):
        return None
    chain: list[Node] = []
    while value is not base:
        source = shown(value)
        if source is None:
            return None
        chain.insert(0, value)
        value = source
    return chain


def erase_unused_views(module: GraphModule) -> list[Any]:
    """Erase views that nothing uses any more, and return the operators that made them."""
    erased = []
    for node in reversed(module.graph.nodes):
        if not node.users and viewed(node) is not None:
            erased.append(node.target)
            module.graph.erase_node(node)
    return erased


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_made(value: Any) -> bool:
    """Whether an output is a tensor, or a number that depends on values, and not a constant."""
    return _is_tensor(value) or (isinstance(value, Node) and is_unknown(value))


def _is_all_of(view: Node, base: Node) -> bool:
    """Whether ``view`` is dense and shows all elements of ``base`` unchanged, maybe in another order."""
    one, other = view.meta["val"], base.meta["val"]
    return (
        isinstance(other, torch.Tensor)
        and one.dtype == other.dtype
        and one.numel() == other.numel()
        and (one.is_contiguous() or memory_order(one) is not None)
        and not one.is_conj()
        and not one.is_neg()
    )


def _applied(node: Node) -> Callable[[Any], Any]:
    """Return a function that makes the view ``node`` from the tensor that it is a view of."""
    target: Any = node.target
    rest, options = node.args[1:], dict(node.kwargs)
    if not options and len(rest) == 1:
        only = rest[0]
        return lambda tensor: target(tensor, only)
    return lambda tensor: target(tensor, *rest, **options)


def _applied_late(node: Node, place_of: Mapping[Node, int]) -> Late:
    """Return what :func:`_applied` does, as a function of a list that has the sizes at ``place_of``."""
    target: Any = node.target
    rest = node.args[1:], dict(node.kwargs)

    def view_of(values: list[Any]) -> Callable[[Any], Any]:
        args, options = map_arg(rest, lambda one: values[place_of[one]])
        return lambda tensor: target(tensor, *args, **options)

    return view_of
