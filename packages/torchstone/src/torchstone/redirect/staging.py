"""A process group for devices that no backend of this PyTorch serves: collectives staged through the CPU.

``gloo`` refuses the tensors of a device registered as PrivateUse1, and such a device seldom has a backend of
its own. :class:`StagedGroup` copies the tensors of a call to the CPU, lets ``gloo`` do the work there and
copies the results back. The results are correct, but the copies take time.
``torch.distributed.get_backend()`` then returns ``staged_gloo``, so it does not hide this.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ..torch_internals import devices, pytree

NAME = "staged_gloo"
_CPU = torch.device("cpu")
_WRITES_FIRST = (
    *("_allgather_base", "all_gather_single", "all_gather_single_coalesced", "allgather"),
    *("allgather_coalesced", "allgather_into_tensor_coalesced"),
    *("all_to_all_single", "alltoall", "alltoall_base"),
    *("allreduce", "allreduce_coalesced", "reduce"),
    *("_reduce_scatter_base", "reduce_scatter", "reduce_scatter_single"),
    *("reduce_scatter_single_coalesced", "reduce_scatter_tensor_coalesced"),
    *("broadcast", "gather", "scatter", "recv", "recv_anysource"),
)
"""Calls that write to their first argument (a tensor, or lists of tensors)."""
_WRITES_NOTHING = ("barrier", "monitored_barrier", "send")


class StagedGroup(dist.ProcessGroup):
    """A process group that runs every collective in ``gloo``, on copies in CPU memory.

    A call returns only when its work is done.
    """

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]  # the stub knows one of three forms
        self._gloo = dist.ProcessGroup(store, rank, size)
        kind = dist.ProcessGroup.BackendType.GLOO
        backend = dist.ProcessGroupGloo(store, rank, size, timeout)
        devices.add_group_backend(self._gloo, _CPU, kind, backend)

    def getBackendName(self) -> str:
        return NAME

    def _get_backend(self, device: torch.device) -> Any:
        return self._gloo._get_backend(_CPU)


def _staged(name: str, *, writes_first: bool) -> Callable[..., Any]:
    def collective(self: StagedGroup, *args: Any, **kwargs: Any) -> Any:
        on_host, named = pytree.tree_map(_to_host, (args, kwargs))
        getattr(self._gloo, name)(*on_host, **named).wait()
        if not writes_first:
            return _done([])
        written = pytree.tree_leaves(args[0])
        with torch.no_grad():
            for tensor, copy in zip(written, pytree.tree_leaves(on_host[0]), strict=True):
                if tensor is not copy:
                    tensor.copy_(copy)
        return _done(written)

    collective.__name__ = name
    return collective


def _to_host(value: Any) -> Any:
    on_device = isinstance(value, torch.Tensor) and value.device != _CPU
    return value.detach().cpu() if on_device else value


def _done(results: list[Any]) -> Any:
    future: torch.futures.Future[list[Any]] = torch.futures.Future()
    future.set_result(results)
    return devices.work_of_future(future)


for _name in _WRITES_FIRST:
    if hasattr(dist.ProcessGroup, _name):  # their names have changed between versions of PyTorch
        setattr(StagedGroup, _name, _staged(_name, writes_first=True))
for _name in _WRITES_NOTHING:
    setattr(StagedGroup, _name, _staged(_name, writes_first=False))


def register(device_type: str) -> str:
    """Make ``staged_gloo`` the default backend of a device type, and return that name."""
    if device_type not in dist.Backend.backend_capability.get(NAME, ()):
        dist.Backend.register_backend(NAME, StagedGroup, devices=[device_type])
    return NAME
