"""Tracing functions to graphs, and what a traced graph knows of its symbols."""

from __future__ import annotations

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
_current_autograd_node = Internal("torch._C._current_autograd_node", "operators called by hand")


def derivative_in_progress() -> str | None:
    """The name of the derivative that autograd computes in this thread; None outside of a backward pass."""
    node = _current_autograd_node()
    return None if node is None else str(node.name())
