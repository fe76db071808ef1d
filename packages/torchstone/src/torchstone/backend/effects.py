"""Decides whether a captured function may be run again to measure it.

It may if it does nothing but compute results. Custom operators may print, count or write files, collectives
wait for other processes, and random operators advance a generator. Each of these must happen exactly as often
as in eager PyTorch.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import torch
from torch.fx import GraphModule, Node

from ..compiler.graphs import bind_schema
from ..compiler.support import NO_EFFECT
from ..lowering import load
from ..torch_internals.dispatch import TorchDispatchMode
from ..torch_internals.operators import HigherOrderOperator, OpOverload, OpOverloadPacket
from ..torch_internals.redirection import set_grad_enabled

_COMPUTING = frozenset(
    {"aten", "prim", "prims", "quantized", "quantized_decomposed", "torchstone", "torchvision"}
)
"""Namespaces of operators that do nothing but compute their results and write their arguments."""
_PACKAGES = frozenset({"torch", "torchstone", "operator", "_operator", "math", "builtins"})
"""Packages whose functions Dynamo leaves in graphs and AOTAutograd then traces to operators."""
_APART = "torch.distributed"
_AUTOGRAD_FUNCTION = "autograd_function_apply"
"""The operator that calls a :class:`torch.autograd.Function`; the function's methods are subgraphs."""


class Effects:
    """The effects of one function, as far as tracing has shown them.

    ``repeatable``: the function does nothing but compute its results and write some of its inputs.
    ``written``: the positions of these inputs, or None if AOTAutograd has replaced several inputs that share
    memory by one.
    """

    def __init__(self, module: GraphModule) -> None:
        self.repeatable = only_computes(module)
        self.written: Collection[int] | None = ()
        self._inputs = len(module.graph.find_nodes(op="placeholder"))
        members = (
            module.named_parameters(remove_duplicate=False),
            module.named_buffers(remove_duplicate=False),
        )
        self._members = len(list(chain(*members)))
        """How many parameters and buffers the graph itself holds. AOTAutograd puts them before its inputs."""

    def note(self, module: GraphModule, metadata: Any = None) -> None:
        """Add what a graph of ATen operators and AOTAutograd's ``metadata`` of its inputs show."""
        self.repeatable = self.repeatable and only_computes(module)
        if metadata is not None:
            own = metadata.input_info[self._members :]
            written = frozenset(
                place
                for place, info in enumerate(own)
                if info.mutates_data or info.mutates_metadata or info.mutation_inductor_storage_resize
            )
            self.written = written if len(own) == self._inputs else None


def only_computes(module: GraphModule) -> bool:
    """Whether every call in ``module`` and its subgraphs is known to do nothing but compute its results.

    A call may write its arguments, and may switch the recording of gradients on or off. It may not change the
    state of PyTorch for later calls in any other way.
    """
    parts = (part for part in module.modules() if isinstance(part, GraphModule))
    return all(_only_computes(node, part) for part in parts for node in part.graph.nodes)


def _only_computes(node: Node, part: GraphModule) -> bool:
    target: Any = node.target
    if node.op == "call_module":
        return isinstance(part.get_submodule(target), GraphModule)
    if node.op != "call_function" or target in NO_EFFECT or target in _STATEMENTS:
        return True
    if isinstance(target, OpOverload):
        return _is_computing(target, node.args, node.kwargs)
    if isinstance(target, OpOverloadPacket):
        return _space(target) in _COMPUTING
    if isinstance(target, HigherOrderOperator):
        return str(target) == _AUTOGRAD_FUNCTION or target in load()
    name = getattr(target, "__module__", None) or ""
    known = name.partition(".")[0] in _PACKAGES and not name.startswith(_APART)
    return known and node.meta.get("val", node.meta.get("example_value")) is not None


_STATEMENTS = (operator.setitem, set_grad_enabled.find())


def _is_computing(target: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call is to a known operator and draws no random numbers."""
    if _space(target) not in _COMPUTING:
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        given = bind_schema(target, args, kwargs)
        return bool(given.get("dropout_p", given.get("dropout")) == 0)
    lowering = load().get(target)
    return lowering is None or "rng" not in lowering.special


def _space(target: Any) -> str:
    return str(target).partition(".")[0]


class RefusingEffects(TorchDispatchMode):
    """A mode that raises :class:`HasEffects` before an operator that may do more than compute its results.

    Checking the graphs of ATen operators is not enough: they lack random operators whose results are unused.
    """

    supports_higher_order_operators = True

    def __torch_dispatch__(
        self, target: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if isinstance(target, OpOverload) and not _is_computing(target, args, kwargs or {}):
            raise HasEffects(f"{target} may do more than compute its results")
        return target(*args, **(kwargs or {}))


class HasEffects(Exception):
    """Raised if a function cannot be measured because an operator that it calls may have other effects."""
