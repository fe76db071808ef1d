"""Finds out which calls of a graph the registry can lower, and why it cannot lower the others."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from .. import dtypes
from ..dtypes import DType
from ..errors import UnsupportedDtype, UnsupportedNode
from ..lowering import load
from ..lowering.registry import EXPANSIONS, Lowering, Registry
from ..torch_internals import tracing
from ..torch_internals.operators import HigherOrderOperator, OpOverload
from .codes import unknown_code
from .expansion import expansion_of
from .graphs import bind, fake_arguments, is_symbolic_number, location_text, operator_nodes
from .operators import registry
from .operators.implementations import implementation_of

NO_EFFECT, EXCLUDED = frozenset(registry.table("no_effect")), registry.table("excluded")
IN_EAGER = registry.table("eager")
_BY_CHOICE = frozenset(IN_EAGER.values())
SAVE_RNG, REPLAY_RNG = tracing.save_rng_state.find(), tracing.replay_rng_state.find()
"""The operators of activation checkpointing, which needs the same random numbers twice.

The first returns ``(state, result)``. The second takes ``(state, …)`` and returns the result.
"""


@dataclass(frozen=True)
class Survey:
    """What is known about the calls of a graph and its subgraphs.

    ``native`` counts the calls of each overload that lowers. ``unsupported`` lists the operators that do
    not, with reason and source lines, and ``preferred`` those that eager PyTorch runs by choice. ``seeded``
    is True if a call draws random numbers.
    """

    native: Counter[str]
    unsupported: list[UnsupportedNode]
    preferred: list[UnsupportedNode]
    seeded: bool

    @property
    def eager(self) -> bool:
        """Whether eager PyTorch runs a part of the graph."""
        return bool(self.unsupported or self.preferred)


def survey(module: GraphModule, registry: Registry | None = None) -> Survey:
    """Find out for each operator in ``module`` whether it lowers, and whether it draws random numbers."""
    registry = registry or load()
    native: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    places: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    seeded = False
    for node in operator_nodes(module):
        seeded = seeded or draws(node, registry)
        reason = unsupported_reason(node, registry)
        if reason is not None:
            key = (str(node.target), reason)
            counts[key] += 1
            place = location_text(node)
            if place:
                places[key][place] += 1
        elif isinstance(node.target, OpOverload):
            native[str(node.target)] += 1
    found: dict[bool, list[UnsupportedNode]] = {False: [], True: []}
    for (name, reason), count in counts.most_common():
        where = tuple(place for place, _ in places[name, reason].most_common())
        found[reason in _BY_CHOICE].append(UnsupportedNode(name, count, reason, where))
    return Survey(native, found[False], found[True], seeded)


NO_FORM = "no_bounded_form"
"""The key in a node's metadata of the reason why the node cannot have sizes that depend on values."""


UNKNOWN = "depends_on_values"
"""The key in a node's metadata that says that ``torch.compile`` leaves the node to eager PyTorch.

Its sizes or numbers depend on values, or those that it takes do.
"""


def unsupported_reason(node: Node, registry: Registry) -> str | None:
    """Return why ``node`` cannot be lowered; None if it can."""
    target = node.target
    if target in NO_EFFECT or target is operator.getitem:
        return None
    for table in (EXCLUDED, IN_EAGER):
        if target in table:
            return str(table[target])
    if is_symbolic_number(node):
        return None
    if target in (SAVE_RNG, REPLAY_RNG):
        inner = node.args[0 if target is SAVE_RNG else 1]
        return None if inner in registry else f"{inner} has no lowering"
    if UNKNOWN in node.meta:
        return "it makes or takes a size or number that depends on values, and programs have fixed sizes"
    if isinstance(target, HigherOrderOperator):
        if "triton_kernel" in str(target):
            return "it is a Triton kernel, which is code for a GPU and not for a compiler of StableHLO"
        if NO_FORM in node.meta:
            return f"the model has sizes that depend on values, and {node.meta[NO_FORM]}"
        return None if target in registry else "this higher-order operator has no lowering"
    if not isinstance(target, OpOverload):
        return "this is not an operator"
    if NO_FORM in node.meta or _makes_unknown_size(node):
        made = _makes_unknown_size(node)
        what = "the size of its result" if made else "the size of a tensor that it takes"
        why = node.meta.get(NO_FORM, "an operator behind it, named below, takes no such tensor")
        return f"{what} depends on the values of its inputs, and {why}"
    lowering = registry.get(target)
    if lowering is None:
        names = (
            str(target),
            str(node.meta.get("original_aten")),
        )
        known = [registry.unavailable[name] for name in names if name in registry.unavailable]
        if known:
            return known[0]
        reason = "no lowering and no decomposition is registered"
        return reason if implementation_of(target) is None else f"{reason}, and its Python code is not traced"
    try:
        subject = _subject_dtype(node)
        for value in _tensors([node.meta.get("val"), *(n.meta.get("val") for n in node.all_input_nodes)]):
            dtypes.from_torch(value.dtype)
            if value.layout is not torch.strided:
                return f"a tensor has layout {value.layout}; only strided tensors are supported"
    except UnsupportedDtype as error:
        return error.message
    for dtype in (subject, *_complex_dtypes(node, lowering)):
        if dtype is not None and dtype not in lowering.dtypes:
            return lowering.gaps.get(dtype, f"not supported for {dtype}")
    unknown = unknown_code(target, node.args, node.kwargs)
    if unknown is not None:
        return unknown
    if EXPANSIONS & lowering.special:
        lacking = survey(expansion_of(node, lowering), registry).unsupported
        return f"it expands to {lacking[0].overload}: {lacking[0].reason}" if lacking else None
    if lowering.refuses is None:
        return None
    return lowering.refuses(fake_arguments(bind(lowering, node.args, node.kwargs)))


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _subject_dtype(node: Node) -> DType | None:
    """Return the dtype to look for in a lowering's dtypes: the first tensor operand's, else the result's."""
    candidates = [*(n.meta.get("val") for n in node.all_input_nodes), node.meta.get("val")]
    for value in _tensors(candidates):
        return dtypes.from_torch(value.dtype)
    return None


def _complex_dtypes(node: Node, lowering: Lowering) -> Iterable[DType]:
    """Return the complex dtypes of the operands, if ``lowering`` is elementwise and for real numbers only."""
    real = lowering.dtypes & dtypes.FLOATING and not lowering.dtypes & dtypes.COMPLEX
    if torch.Tag.pointwise not in lowering.overload.tags or not real:
        return []
    values = _tensors(one.meta.get("val") for one in node.all_input_nodes)
    return [dtypes.from_torch(value.dtype) for value in values if value.is_complex()]


def draws(node: Node, registry: Registry) -> bool:
    lowering = registry.get(node.target)
    return node.target is SAVE_RNG or (lowering is not None and "rng" in lowering.special)


def _makes_unknown_size(node: Node) -> bool:
    """Whether a size of the node's result depends on values, and comes from none of its inputs."""
    unknown = _unbacked([node.meta.get("val")])
    return bool(unknown) and bool(unknown - _unbacked(n.meta.get("val") for n in node.all_input_nodes))


def _unbacked(values: Iterable[Any]) -> set[Any]:
    given = list(values)
    sizes = [size for tensor in _tensors(given) for size in tensor.shape if type(size) is not int]
    numbers = [value for value in given if isinstance(value, torch.SymInt)]
    return {symbol for one in (*sizes, *numbers) for symbol in tracing.free_unbacked_symbols(one)}
