"""From an operator's call to a graph: run it on fake tensors, then build the graph that computes the results.

In-place and ``out=`` forms use the lowering of the functional form. An operator without a lowering is traced
through PyTorch's decompositions, as in the compiler. The program around the graph is made in
:mod:`.building`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from .. import dtypes
from ..compiler.argument_checks import check_arguments
from ..compiler.assertions import asserting
from ..compiler.expansion import traced
from ..compiler.normalize import decompositions, mended_operators
from ..compiler.support import unsupported_reason
from ..lowering import load
from ..torch_internals import pytree
from ..torch_internals.fake import LOGGER, FakeTensorMode
from ..torch_internals.logs import quiet
from ..torch_internals.operators import OpOverload, namespace, schema_of
from ..torch_internals.private_device import functional_form, parameters_of, written_arguments
from ..torch_internals.tensors import version_of
from .calls import Call, substituted
from .layout import Layout

aten = namespace("aten")
_WIDEST = torch.complex128.itemsize


class Unplanned(Exception):
    """Raised if no program can be made for an operator; the message is the reason."""


@dataclass
class Draft:
    """One call on fake tensors, with its arguments and the result that PyTorch's metadata functions give."""

    overload: OpOverload
    call: Call
    args: list[Any]
    kwargs: dict[str, Any]
    fakes: list[torch.Tensor]
    before: list[Layout]
    mode: FakeTensorMode
    composed: Callable[..., Any] | None = None
    result: Any = None
    changed: frozenset[int] = frozenset()

    def written(self) -> list[int]:
        """Return the positions, among the call's tensors, of those that the operator writes into.

        For a composed operator, these are only the tensors that it did change: its schema also lists tensors
        that it writes in some cases only (such as gradients that may be scaled).
        """
        names = written_arguments(self.overload)
        schema = [argument.name for argument in schema_of(self.overload).arguments]
        values = [
            value
            for name in names
            for value in pytree.tree_leaves(
                self.kwargs[name] if name in self.kwargs else _at(self.args, schema.index(name))
            )
        ]
        places = [self.place(value) for value in values if isinstance(value, torch.Tensor)]
        return places if self.composed is None else [one for one in places if one in self.changed]

    def place(self, fake: torch.Tensor) -> int:
        """Return the position of the call's tensor that ``fake`` stands for; -1 for a new tensor."""
        return next((i for i, one in enumerate(self.fakes) if one is fake), -1)


def _at(values: Sequence[Any], position: int) -> Any:
    return values[position] if position < len(values) else None


def rehearsed(
    overload: OpOverload,
    call: Call,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    composed: Callable[..., Any] | None,
) -> Draft:
    """Run the call on fake CPU tensors that share storages in the same way as the call's tensors."""
    with mended_operators(), quiet(LOGGER), FakeTensorMode() as mode:
        fakes = _fakes(call)
        feed = iter(fakes)
        given = substituted(call, args, kwargs, lambda _: next(feed))
        draft = Draft(overload, call, *given, fakes, [layout_of(fake) for fake in fakes], mode)
        draft.composed = composed
        versions = [version_of(fake) for fake in fakes]
        draft.result = (composed or overload)(*draft.args, **draft.kwargs)
        draft.changed = frozenset(i for i, fake in enumerate(fakes) if version_of(fake) != versions[i])
    return draft


def _fakes(call: Call) -> list[torch.Tensor]:
    bases: dict[int, torch.Tensor] = {}
    fakes = []
    for tensor, place in zip(call.tensors, call.places, strict=True):
        if place < 0:
            fakes.append(torch.empty((), dtype=tensor.dtype, device="cpu"))
            continue
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unplanned(f"a tensor has layout {tensor.layout} and dtype {tensor.dtype}")
        if place not in bases:  # padded to whole elements of any dtype, which ``view(dtype)`` requires
            nbytes = -(-call.boxes[place].nbytes // _WIDEST) * _WIDEST
            bases[place] = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        base = bases[place].view(tensor.dtype)
        fakes.append(base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()))
    return fakes


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(
        dtypes.from_torch(tensor.dtype), tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset())
    )


# The graph --------------------------------------------------------------------------------


def graph_of(
    draft: Draft, written: list[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[GraphModule, list[torch.Tensor]]:
    """Return a graph from the call's tensors and numbers to its results, and the fakes of the new tensors.

    The results are the values of the written tensors, followed by the new tensors.
    """
    new = [one for one in _tensors(draft.result) if draft.place(one) < 0]
    module = None
    if draft.composed is None:
        _check(draft)
        module = _one_node(draft, written, new, args, kwargs)
    if module is None:
        if draft.call.numbers:
            raise Unplanned("its lowering takes numbers as parts of the program only")
        module = _decomposed(draft, written, args, kwargs)
    return module, new


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _check(draft: Draft) -> None:
    """Raise for arguments that eager PyTorch refuses although its metadata functions accept them."""
    graph = Graph()
    nodes = _placeholders(graph, draft.fakes)
    by_fake = {id(fake): node for fake, node in zip(draft.fakes, nodes, strict=True)}
    args, kwargs = pytree.tree_map_only(
        torch.Tensor, lambda one: by_fake.get(id(one), one), (tuple(draft.args), draft.kwargs)
    )
    node = graph.call_function(draft.overload, args, kwargs)
    node.meta["val"] = draft.result
    graph.output(())
    check_arguments(GraphModule({}, graph))


def _placeholders(graph: Graph, fakes: Sequence[torch.Tensor]) -> list[Node]:
    nodes = []
    for position, fake in enumerate(fakes):
        node = graph.placeholder(f"argument_{position}")
        node.meta["val"] = fake
        nodes.append(node)
    return nodes


@cache
def _rewritten() -> frozenset[Any]:
    """Operators with a lowering that are decomposed first, because the decomposition examines the call."""
    return frozenset(decompositions(training=True)) & load().overloads()


def _one_node(
    draft: Draft,
    written: list[int],
    new: list[torch.Tensor],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> GraphModule | None:
    """Return a graph of one call of the functional form, or None if that has no lowering for the call."""
    functional = functional_form(draft.overload)
    if functional is None or functional not in load() or functional in _rewritten():
        return None
    outputs = set(written_arguments(draft.overload)) - set(parameters_of(functional))
    value = draft.result
    if functional is not draft.overload:
        with mended_operators(), draft.mode:
            value = functional(*draft.args, **_without(draft.kwargs, outputs))
    if written:
        results = list(_tensors(value))
        if new or len(results) != len(written):
            return None
        _refuse_conversions(draft, results, written)
    graph = Graph()
    nodes = iter(_placeholders(graph, draft.fakes))
    numbers = iter(_number_nodes(graph, draft))
    node_args, node_kwargs = substituted(
        draft.call, args, kwargs, lambda _: next(nodes), lambda _: next(numbers)
    )
    node = graph.call_function(functional, tuple(node_args), _without(node_kwargs, outputs))
    node.meta["val"] = value
    if unsupported_reason(node, load()) is not None:
        return None
    graph.output(tuple(_parts(graph, node)))
    return GraphModule({}, graph)


def _refuse_conversions(draft: Draft, results: Sequence[torch.Tensor], written: list[int]) -> None:
    """Raise :class:`Unplanned` if a result cannot be cast to the written tensor's dtype.

    ``copy_`` is exempt: it converts between any dtypes.
    """
    if draft.overload is aten.copy_.default:
        return
    for value, place in zip(results, written, strict=True):
        target = draft.fakes[place].dtype
        if not torch.can_cast(value.dtype, target):
            raise Unplanned(f"a result of {value.dtype} does not fit into {target}")


def _without(kwargs: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if name not in names}


def _number_nodes(graph: Graph, draft: Draft) -> list[Node]:
    """Return the placeholders of the numbers, which follow those of the tensors."""
    nodes = []
    with draft.mode:
        for position, (_, dtype) in enumerate(draft.call.numbers):
            node = graph.placeholder(f"number_{position}")
            node.meta["val"] = torch.empty((), dtype=dtype.torch, device="cpu")
            nodes.append(node)
    return nodes


def _parts(graph: Graph, node: Node) -> list[Node]:
    """Return one node for each tensor in a node's result."""
    value = node.meta["val"]
    if isinstance(value, torch.Tensor):
        return [node]
    parts = []
    for position, one in enumerate(value):
        if isinstance(one, torch.Tensor):
            parts.append(graph.call_function(operator.getitem, (node, position)))
            parts[-1].meta["val"] = one
    return parts


def _decomposed(
    draft: Draft, written: list[int], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> GraphModule:
    """Trace the call through functionalization and PyTorch's decompositions."""

    def computed(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = [one.clone() if i in written else one for i, one in enumerate(tensors)]
        feed = iter(given)
        traced_args, traced_kwargs = substituted(draft.call, args, kwargs, lambda _: next(feed))
        result = (draft.composed or draft.overload)(*traced_args, **traced_kwargs)
        made = [
            one
            for one, fake in zip(_tensors(result), _tensors(draft.result), strict=True)
            if draft.place(fake) < 0
        ]
        return [*(given[place] for place in written), *(one.clone() for one in made)]

    with draft.mode:
        fakes = [
            torch.empty_strided(one.size, one.stride, dtype=one.dtype.torch, device="cpu")
            for one in draft.before
        ]
    with asserting(True):  # the device checks values in every call
        return traced(computed, fakes)
