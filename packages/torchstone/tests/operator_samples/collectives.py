"""Samples of ``lowering.aten.collectives`` for a group of one rank, which receives what it sends.

Tests with several ranks are in ``tests/sharding/on_devices``.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives
import torch.distributed.tensor
from torch._C import _distributed_c10d
from torch.testing._internal.distributed.fake_pg import FakeStore

from . import Make, Sample, samples

c10d, autograd = torch.ops._c10d_functional, torch.ops._c10d_functional_autograd

ALONE = "torchstone-samples"
NOT_ALONE = "torch.compile leaves collectives to PyTorch"


@functools.cache
def group_of_one() -> dist.ProcessGroup:
    """Return a process group of one rank, without making it the default group."""
    group = dist.ProcessGroup(FakeStore(), 0, 1)
    backend = _distributed_c10d.FakeProcessGroup._create_internal(
        0, 1, _distributed_c10d.FakeProcessGroup.Options()
    )
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
    group._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
    group._set_group_name(ALONE)
    return group


def alone() -> str:
    """Return the name of that group. Register it again if a test destroyed its own groups, and this one."""
    try:
        _distributed_c10d._resolve_process_group(ALONE)
    except RuntimeError:
        _distributed_c10d._register_process_group(ALONE, group_of_one())
    return ALONE


def tensors(make: Make) -> Iterator[tuple[torch.Tensor, str]]:
    yield make(4, 3), ""
    yield make(0, 3), "empty"
    yield make.transposed(4, 2), "transposed"


def reductions(make: Make) -> list[str]:
    if make.is_complex:
        return ["sum", "avg", "product"]
    return ["sum", "product", "min", "max", *(["avg"] if make.is_float else ["band", "bor", "bxor"])]


@samples(c10d.all_reduce.default, gradient=False, reason=NOT_ALONE)
def _all_reduce(make: Make) -> Iterator[Sample]:
    for x, note in (*tensors(make), (make(), "0-d")):
        yield Sample((x, "sum", alone()), note=note)
    for name in reductions(make):
        yield Sample((make(2, 3), name, alone()), note=name)


@samples(c10d.all_reduce_coalesced.default, gradient=False, reason=NOT_ALONE)
def _all_reduce_coalesced(make: Make) -> Iterator[Sample]:
    yield Sample(([make(4, 3), make(2)], "sum", alone()))


@samples(
    c10d.all_gather_into_tensor.default,
    autograd.all_gather_into_tensor.default,
    gradient=False,
    reason=NOT_ALONE,
)
def _all_gather_into_tensor(make: Make) -> Iterator[Sample]:
    for x, note in tensors(make):
        yield Sample((x, 1, alone()), note=note)


@samples(c10d.all_gather_into_tensor_coalesced.default, gradient=False, reason=NOT_ALONE)
def _all_gather_into_tensor_coalesced(make: Make) -> Iterator[Sample]:
    yield Sample(([make(4, 3), make(2), make()], 1, alone()))


@samples(
    c10d.reduce_scatter_tensor.default,
    autograd.reduce_scatter_tensor.default,
    gradient=False,
    reason=NOT_ALONE,
)
def _reduce_scatter_tensor(make: Make) -> Iterator[Sample]:
    for x, note in tensors(make):
        yield Sample((x, "sum", 1, alone()), note=note)
    for name in reductions(make):
        yield Sample((make(2, 3), name, 1, alone()), note=name)


@samples(c10d.reduce_scatter_tensor_coalesced.default, gradient=False, reason=NOT_ALONE)
def _reduce_scatter_tensor_coalesced(make: Make) -> Iterator[Sample]:
    yield Sample(([make(4, 3), make(2)], "sum", 1, alone()))


@samples(c10d.all_to_all_single.default, autograd.all_to_all_single.default, gradient=False, reason=NOT_ALONE)
def _all_to_all_single(make: Make) -> Iterator[Sample]:
    for x, note in tensors(make):
        yield Sample((x, [len(x)], [len(x)], alone()), note=note)


@samples(torch.ops._dtensor.shard_dim_alltoall.default, gradient=False, reason=NOT_ALONE)
def _shard_dim_alltoall(make: Make) -> Iterator[Sample]:
    """Yield nothing without a default group: PyTorch's shape rule asks for the rank in it."""
    if dist.is_initialized():
        yield Sample((make(4, 3), 0, 1, alone()))


@samples(c10d.broadcast.default, gradient=False, reason=NOT_ALONE)
def _broadcast(make: Make) -> Iterator[Sample]:
    for x, note in (*tensors(make), (make(), "0-d")):
        yield Sample((x, 0, alone()), note=note)


@samples(c10d.wait_tensor.default, gradient=False, reason=NOT_ALONE)
def _wait_tensor(make: Make) -> Iterator[Sample]:
    for x, note in (*tensors(make), (make(), "0-d")):
        yield Sample((x,), note=note)
