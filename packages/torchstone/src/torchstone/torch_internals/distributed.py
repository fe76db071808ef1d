"""The ranks of process groups, and how ``torch.export`` traces DTensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram

from .patches import tracing
from .probing import Internal

_group_named = Internal("torch._C._distributed_c10d._resolve_process_group", "functional collectives")

_placed_as = Internal("torch.distributed.tensor._dtensor_spec.DTensorSpec", "exporting models with DTensors")
_constant = Internal("torch.utils._pytree.register_constant", "exporting models with DTensors")
_is_constant = Internal("torch.utils._pytree.is_constant_class", "exporting models with DTensors")
_forget = Internal("torch.utils._pytree._deregister_pytree_node", "exporting models with DTensors")


@contextmanager
def dtensors_in_graphs() -> Iterator[None]:
    """Let ``torch.export`` treat the mesh and placements of DTensors as constants of the graph.

    Without this, it refuses a model that makes DTensors, such as one from ``parallelize_module``.
    """
    with tracing():
        specs = _placed_as.find() if "torch.distributed.tensor" in sys.modules else None
        if specs is None or _is_constant(specs):
            yield
            return
        _constant(specs)
        try:
            yield
        finally:
            _forget(specs)


def makes_dtensors(program: ExportedProgram) -> bool:
    """Whether a program that was just captured has DTensors among its weights or its intermediate values."""
    kind = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
    if kind is None:
        return False
    values = [node.meta.get("val") for node in program.graph.nodes]
    return any(isinstance(one, kind) for one in (*program.state_dict.values(), *values))


def ranks_of_group(group: Any) -> tuple[list[int], int] | None:
    """Return the ranks of a process group, in its order, and the number of ranks in the world.

    ``group`` is the group or its name. Returns None if this process has no such group.
    """
    if not torch.distributed.is_available():
        return None
    try:
        found = _group_named(group) if isinstance(group, str) else group
    except (RuntimeError, ValueError, KeyError):
        return None
    if found.size() == 1 and not torch.distributed.is_initialized():
        return [0], 1
    ranks: list[int] = torch.distributed.get_process_group_ranks(found)
    return ranks, torch.distributed.get_world_size()
