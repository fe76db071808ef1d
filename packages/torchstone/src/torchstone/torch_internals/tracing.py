"""Tracing functions to graphs, and the symbols and sequence numbers of traced code."""

from __future__ import annotations

from typing import Any

import torch

from .probing import Internal

make_fx = Internal("torch.fx.experimental.proxy_tensor.make_fx", "tracing operators")
aot_export_joint_simple = Internal(
    "torch._functorch.aot_autograd.aot_export_joint_simple", "expanding composite operators"
)
free_unbacked_symbols = Internal(
    "torch.fx.experimental.symbolic_shapes.free_unbacked_symbols", "finding sizes that depend on values"
)
save_rng_state = Internal("torch._prims.rng_prims.run_and_save_rng_state", "activation checkpointing")
replay_rng_state = Internal("torch._prims.rng_prims.run_with_rng_state", "activation checkpointing")
_IN_FORWARD = "assignments in the forward pass of exports"
_proxy_mode = Internal("torch.fx.experimental.proxy_tensor.get_proxy_mode", _IN_FORWARD)
_proxy = Internal("torch.fx.experimental.proxy_tensor.get_proxy_slot", _IN_FORWARD)
_set_proxy = Internal("torch.fx.experimental.proxy_tensor.set_proxy_slot", _IN_FORWARD)
_current_autograd_node = Internal("torch._C._current_autograd_node", "operators called by hand")
_sequence_number = Internal("torch.autograd._get_sequence_nr", "naming the forward line of a derivative")


def sequence_number(*, in_backward: bool) -> int:
    """Return the sequence number that a forward operator and its derivative have in common.

    With ``in_backward``, it is that of the derivative in progress, or -1 if there is none. Otherwise it is
    that of the last forward operator.
    """
    if not in_backward:
        return int(_sequence_number()) - 1
    node = _current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def derivative_in_progress() -> str | None:
    """Return the name of the derivative that autograd computes in this thread, or None if there is none."""
    node = _current_autograd_node()
    return None if node is None else str(node.name())


def unbacked_symbols(number: torch.SymInt | torch.SymFloat | torch.SymBool) -> set[Any]:
    """Return the symbols in ``number`` that depend on values.

    They include those whose values became known after ``number`` was traced, through ``torch._check``.
    """
    first: set[Any] = free_unbacked_symbols(getattr(number.node, "_expr", None))
    return first | free_unbacked_symbols(number)


def traced_size(size: int | torch.SymInt) -> int | None:
    """Return the value that a size had when it was traced; None if it depends on the values of a tensor."""
    found = size if isinstance(size, int) else size.node.hint
    return found if isinstance(found, int) else None


def continue_as(tensor: torch.Tensor, other: torch.Tensor) -> None:
    """Let the graph that is traced now use the node of ``other`` wherever it would use that of ``tensor``."""
    tracer = _proxy_mode().tracer
    _set_proxy(tensor, tracer, _proxy(other, tracer))
    for memo in ("nonzero_memo", "item_memo", "unique_memo", "unique_consecutive_memo"):
        if hasattr(type(tensor), memo):  # what a fake tensor knows about the values that it had
            setattr(tensor, memo, None)
    tensor.constant = getattr(other, "constant", None)  # type: ignore[attr-defined]


def traced_node(tensor: torch.Tensor) -> torch.fx.Node | None:
    """Return the node of ``tensor`` in the graph that is traced now; None if it has none."""
    mode = _proxy_mode()
    slot = None if mode is None else _proxy(tensor, mode.tracer, None)
    return None if slot is None else slot.proxy.node


def traced_constants() -> dict[torch.fx.Node, torch.Tensor]:
    """Return the real tensors that the graph traced now reads, by the nodes that stand for them."""
    mode = _proxy_mode()
    if mode is None:
        return {}
    nodes = (node for node in mode.tracer.graph.nodes if node.op == "get_attr" and node.users)
    return {node: getattr(mode.tracer.root, str(node.target)) for node in nodes}
