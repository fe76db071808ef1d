"""Operators that are traced through: the graph has the calls of their Python implementations instead.

These are operators outside of ATen (from ``torch.library``, and PyTorch's primitives) that have neither a
lowering nor a decomposition. Not here: how an implementation is found (``torch_internals``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule, Node
from torch.fx.node import map_arg

from ...config import config
from ...lowering import load
from ...torch_internals.dispatch import TorchDispatchMode
from ...torch_internals.fake import detect_fake_mode, forgetting_sizes
from ...torch_internals.operators import OpOverload, OpOverloadPacket, python_implementation, schema_of


def implementation_of(operator: Any) -> Callable[..., Any] | None:
    """Return the Python code that is traced in place of ``operator``; None if it is not traced through."""
    if not config.trace_implementations:
        return None
    if isinstance(operator, OpOverloadPacket):
        overloads = operator.overloads()
        operator = getattr(operator, overloads[0]) if len(overloads) == 1 else None
    if not isinstance(operator, OpOverload) or operator.namespace == "aten":
        return None
    registry = load()
    record = registry.record(operator)
    known = record.lowering or record.rules or operator in registry.decompositions
    return None if known else python_implementation(operator)


def implementations_in(module: GraphModule) -> dict[OpOverload, Callable[..., Any]]:
    """Return implementations, if they can be traced, of the functional operators that a graph still calls."""
    found: dict[OpOverload, Callable[..., Any]] = {}
    for node in module.graph.nodes:
        implementation = implementation_of(node.target)
        if implementation is not None and _is_functional(node.target) and _traces(implementation, node):
            found[node.target] = implementation
    return found


def _is_functional(overload: OpOverload) -> bool:
    """Whether an operator neither writes nor returns views. Operators that do cannot be expanded late."""
    schema = schema_of(overload)
    return all(each.alias_info is None for each in (*schema.arguments, *schema.returns))


class _Functional(TorchDispatchMode):
    """A mode that refuses operators that write: a graph that is expanded late cannot contain them."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if schema_of(func).is_mutable:
            raise NotImplementedError(f"{func} writes into a tensor")
        return func(*args, **(kwargs or {}))


def _traces(implementation: Callable[..., Any], node: Node) -> bool:
    """Whether the implementation runs on fake tensors, without operators that write."""
    args, kwargs = map_arg((node.args, dict(node.kwargs)), lambda each: each.meta["val"])
    mode = detect_fake_mode(list(args))
    if mode is None:
        return False
    try:
        with mode, forgetting_sizes(mode), _Functional():
            implementation(*args, **kwargs)
    except Exception:  # noqa: BLE001  # it may fail in any way on tensors without values
        return False
    return True
