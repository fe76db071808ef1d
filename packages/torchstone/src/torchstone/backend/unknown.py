"""Finds the calls of a graph whose sizes or numbers depend on the values of tensors.

PyTorch names such a size or number by an unbacked symbol. A compiled program has fixed sizes, so eager
PyTorch runs these calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..compiler.support import UNKNOWN
from ..torch_internals import pytree
from ..torch_internals.operators import namespace
from ..torch_internals.tensors import neg_view
from ..torch_internals.tracing import unbacked_symbols

aten = namespace("aten")
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_READING = frozenset(
    {
        aten._local_scalar_dense.default,
        aten._unique.default,
        aten._unique2.default,
        aten.argwhere.default,
        aten.bincount.default,
        aten.item.default,
        aten.masked_select.default,
        aten.nonzero.default,
        aten.unique_consecutive.default,
        aten.unique_dim.default,
        aten.unique_dim_consecutive.default,
    }
)
"""Operators whose result always has a size, or is a number, that depends on values."""


class UnknownSizes:
    """The symbols of sizes and numbers that the graphs of one function compute from values.

    A backward graph takes some of them from its forward graph. Symbols that a user gave to sizes of inputs
    (``mark_unbacked``) are not among them, because the sizes of inputs are known in each call.
    """

    def __init__(self) -> None:
        self._symbols: set[Any] = set()

    def mark(self, module: GraphModule) -> None:
        """Mark the nodes of ``module`` that make or take sizes or numbers that depend on values."""
        if not any(True for node in _all_nodes(module) for _ in symbolic(node.meta.get("val"))):
            return
        given = {symbol for node in module.graph.find_nodes(op="placeholder") for symbol in _symbols(node)}
        self._symbols |= {symbol for node in _all_nodes(module) for symbol in _symbols(node)} - given
        for node in module.graph.nodes:
            if node.op != "output" and self._is_unknown(node, module):
                node.meta[UNKNOWN] = True

    def _is_unknown(self, node: Node, module: GraphModule) -> bool:
        if self._depends(node) or any(map(self._gives_unknown, node.all_input_nodes)):
            return True
        parts = [attrgetter(str(one.target))(module) for one in node.all_input_nodes if one.op == "get_attr"]
        if any(isinstance(part, GraphModule) and any(map(self._depends, _all_nodes(part))) for part in parts):
            return True
        # A size that ``torch._check`` made known has no such symbol any more, but the check must run.
        return _reads_values(node) and any(True for _ in symbolic(node.meta.get("val")))

    def _gives_unknown(self, node: Node) -> bool:
        """Whether what takes the value of ``node`` depends on an unknown size or number."""
        if self._depends(node):
            return True
        value = node.meta.get("val")
        return UNKNOWN in node.meta and (is_number(value) or any(True for _ in symbolic(value)))

    def _depends(self, node: Node) -> bool:
        return not self._symbols.isdisjoint(_symbols(node))


def _reads_values(node: Node) -> bool:
    """Whether the size or number that a call returns depends on values."""
    if node.target is aten.repeat_interleave.Tensor:
        return len(node.args) < 2 and node.kwargs.get("output_size") is None
    if node.target is not aten.index.Tensor:
        return node.target in _READING
    indices = [one.meta["val"].dtype for one in node.args[1] if isinstance(one, Node)]  # type: ignore[union-attr]
    return torch.bool in indices or torch.uint8 in indices


def is_unknown(node: Node) -> bool:
    """Whether the node was marked: its sizes or numbers depend on values, or those that it takes do."""
    return UNKNOWN in node.meta


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, *_SYMBOLIC))


def symbolic(value: Any) -> Iterable[Any]:
    """Yield the symbolic sizes, strides and numbers in the metadata of a node."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            parts = (*leaf.shape, *leaf.stride()) if leaf.layout is torch.strided else tuple(leaf.shape)
            yield from (part for part in parts if isinstance(part, torch.SymInt))
        elif isinstance(leaf, _SYMBOLIC):
            yield leaf


def known_form(form: Any, traced: Any) -> Any:
    """Return ``form``, the shape and strides of a tensor or a number, without what depends on values."""
    if not isinstance(traced, torch.Tensor):
        return None
    shape, stride = form
    return (
        tuple(size for size, one in zip(shape, traced.shape, strict=True) if _is_known(one)),
        tuple(step for step, one in zip(stride, traced.stride(), strict=True) if _is_known(one)),
    )


def _is_known(size: Any) -> bool:
    return not isinstance(size, torch.SymInt) or not unbacked_symbols(size)


class KnownSizes:
    """The sizes that a call of ``module`` with ``inputs`` makes known, for nodes that eager PyTorch runs."""

    def __init__(self, module: GraphModule, inputs: Sequence[Any]) -> None:
        self._module = module
        self._values: dict[Any, Any] = {}
        self._open: set[Node] = set()
        """Nodes whose sizes are not all known: eager PyTorch also runs what takes their values."""
        for node, given in zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True):
            traced = node.meta["val"]
            if isinstance(traced, torch.Tensor):
                pairs = list(
                    zip((*traced.shape, *traced.stride()), (*given.shape, *given.stride()), strict=True)
                )
            else:
                pairs = [(traced, given)]
            for symbolic_size, size in pairs:
                if not isinstance(symbolic_size, _SYMBOLIC) or (
                    is_unknown(node) and not _is_known(symbolic_size)
                ):
                    continue
                if symbolic_size.node.expr.is_Symbol:
                    self._values[symbolic_size.node.expr] = size

    def leaves_open(self, node: Node) -> bool:
        """Whether eager PyTorch must run ``node`` in this call."""
        if node.op == "get_attr":
            found = attrgetter(str(node.target))(self._module)
            if isinstance(found, GraphModule):
                self._open.add(node)
        return is_unknown(node) or node in self._open or not self._open.isdisjoint(node.all_input_nodes)

    def settled(self, node: Node) -> Any:
        """Return the metadata of ``node`` with the sizes of this call, or as traced if they are not known."""
        traced = node.meta.get("val")
        try:
            return pytree.tree_map_only((torch.Tensor, *_SYMBOLIC), self._settled, traced)
        except _NotKnown:
            self._open.add(node)
            return traced

    def _settled(self, traced: Any) -> Any:
        if not isinstance(traced, torch.Tensor):
            return self._number(traced)
        if traced.layout is not torch.strided:
            raise _NotKnown
        shape, stride = map(self._number, traced.shape), map(self._number, traced.stride())
        made = torch.empty_strided(tuple(shape), tuple(stride), dtype=traced.dtype, device=traced.device)
        return as_traced(made, traced)

    def _number(self, number: Any) -> Any:
        if not isinstance(number, _SYMBOLIC):
            return number
        found = number.node.expr.subs(self._values)
        if found.free_symbols:
            raise _NotKnown
        kinds = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
        return kinds[type(number)](found)


class _NotKnown(Exception):
    """Raised if a size depends on values."""


def as_traced(tensor: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` with the lazy conjugate and negative bits of ``traced``; its values do not matter.

    The bits of a gradient are not known when its graph is traced, so they may differ.
    """
    if tensor.is_conj() != traced.is_conj():
        tensor = tensor.conj()
    return tensor if tensor.is_neg() == traced.is_neg() else neg_view(tensor)


def _symbols(node: Node) -> set[Any]:
    return {symbol for one in symbolic(node.meta.get("val")) for symbol in unbacked_symbols(one)}


def _all_nodes(module: GraphModule) -> Iterable[Node]:
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes
