"""Helpers for tests of programs with collectives: a world of ranks in one process, and runs of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import torchstone


@contextmanager
def world(*sizes: int, rank: int = 0) -> Iterator[DeviceMesh]:
    """Make a device mesh with the axes a, b, … of these sizes, in a process that acts as ``rank``.

    Its collectives compute nothing in eager PyTorch.
    """
    count = 1
    for size in sizes:
        count *= size
    dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
    try:
        yield init_device_mesh("cpu", sizes, mesh_dim_names=tuple("abcd"[: len(sizes)]))
    finally:
        dist.destroy_process_group()


def run(function: Callable[..., Any], *arguments: Sequence[torch.Tensor]) -> list[Any]:
    """Return each rank's result; every argument is a list with a tensor for each rank."""
    calls = list(zip(*arguments, strict=True))
    return torchstone.Ranks(torchstone.export(function, calls[0]))(calls)


def values(dtype: torch.dtype, count: int, *shape: int) -> list[torch.Tensor]:
    """A random tensor for each rank."""
    if dtype.is_complex:
        return [torch.randn(shape, dtype=dtype) for _ in range(count)]
    return [(torch.randn(shape) * 5).to(dtype) for _ in range(count)]


def rows(count: int, size: int) -> list[list[int]]:
    """The groups along the last axis of a mesh."""
    return [list(range(start, start + size)) for start in range(0, count, size)]


def columns(count: int, size: int) -> list[list[int]]:
    """The groups along the first axis of a mesh, whose last has ``size`` entries."""
    return [list(range(start, count, size)) for start in range(size)]


def of_groups(groups: Sequence[Sequence[int]], values: Sequence[Any]) -> list[tuple[int, list[Any]]]:
    """Return, for each rank, its place in its group and the values of the group's ranks."""
    found: dict[int, tuple[int, list[Any]]] = {}
    for group in groups:
        for place, rank in enumerate(group):
            found[rank] = place, [values[one] for one in group]
    return [found[rank] for rank in range(len(values))]
