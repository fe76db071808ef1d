"""Capture rules for collectives that write into tensors and that ``torch.export`` cannot trace.

PyTorch itself traces the other collectives of ``torch.distributed`` as functional ones followed by a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...torch_internals.operators import namespace
from .registry import capture_rule

Tensor = torch.Tensor

c10d = namespace("_c10d_functional")


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> None:
    """Call the functional broadcast, wait for it, and copy its result into ``tensor``."""
    if async_op:
        raise NotImplementedError(
            "broadcast with async_op=True returns work to wait for, which no graph holds"
        )
    group = group or torch.distributed.group.WORLD
    if group_src is None:
        group_src = torch.distributed.get_group_rank(group, src or 0)
    tensor.copy_(c10d.wait_tensor(c10d.broadcast(tensor, group_src, group.group_name)))


def all_reduce_(input: Tensor, reduce_op: str, group_name: Any) -> Tensor:
    """Call the functional all-reduce, and copy its result into ``input``."""
    return input.copy_(c10d.all_reduce(input, reduce_op, group_name))


def all_reduce_coalesced_(inputs: Sequence[Tensor], reduce_op: str, group_name: Any) -> list[Tensor]:
    """Call the functional all-reduce of several tensors, and copy the results into ``inputs``."""
    made = c10d.all_reduce_coalesced(inputs, reduce_op, group_name)
    return [one.copy_(new) for one, new in zip(inputs, made, strict=True)]


def broadcast_(input: Tensor, src: int, group_name: Any) -> Tensor:
    """Call the functional broadcast, and copy its result into ``input``."""
    return input.copy_(c10d.broadcast(input, src, group_name))


def all_gather_into_tensor_out(input: Tensor, group_size: int, group_name: Any, *, out: Tensor) -> Tensor:
    """Call the functional all-gather, and copy its result into ``out``."""
    return out.copy_(c10d.all_gather_into_tensor(input, group_size, group_name))


def reduce_scatter_tensor_out(
    input: Tensor, reduce_op: str, group_size: int, group_name: Any, *, out: Tensor
) -> Tensor:
    """Call the functional reduce-scatter, and copy its result into ``out``."""
    return out.copy_(c10d.reduce_scatter_tensor(input, reduce_op, group_size, group_name))


if torch.distributed.is_available():
    capture_rule((torch.distributed, "broadcast"), of=[torch.ops._c10d_functional.broadcast])(broadcast)
    for _rule in (
        all_reduce_,
        all_reduce_coalesced_,
        broadcast_,
        all_gather_into_tensor_out,
        reduce_scatter_tensor_out,
    ):
        _operator = getattr(torch.ops._c10d_functional, _rule.__name__, None)
        if _operator is not None:
            capture_rule(_operator)(_rule)
