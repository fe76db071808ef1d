"""Devices: default device, generators, process groups, and the names that redirection replaces."""

from __future__ import annotations

from typing import Any

import torch

from .probing import Internal

EXCHANGE_DEVICE = "torch.cuda._exchange_device"
MAYBE_EXCHANGE_DEVICE = "torch.cuda._maybe_exchange_device"
GET_DEVICE_INDEX = "torch.cuda._get_device_index"
DEVICE_FROM_MODULE = "torch.storage._get_device_from_module"
MODULE_APPLY = "torch.nn.Module._apply"
RUN_BACKWARD = "torch.autograd._engine_run_backward"
RECORD_MEMORY_HISTORY = "torch.cuda.memory._record_memory_history"
DUMP_MEMORY_SNAPSHOT = "torch.cuda.memory._dump_snapshot"
SET_MATH_ATTENTION = "torch._C._set_sdp_use_math"
GET_MATH_ATTENTION = "torch._C._get_math_sdp_enabled"

private_backend_name = Internal("torch._C._get_privateuse1_backend_name", "redirection")
mps_generator = Internal("torch.mps._get_default_mps_generator", "redirection to mps")
work_of_future = Internal("torch._C._distributed_c10d._create_work_from_future", "redirection of NCCL")
_device_context = Internal("torch._GLOBAL_DEVICE_CONTEXT", "redirection")


def default_device() -> torch.device | None:
    """Return the device that ``torch.set_default_device`` set in this thread, or None."""
    context = getattr(_device_context.get(), "device_context", None)
    return None if context is None else context.device


def gpu_count() -> int:
    """Return how many GPUs this build of PyTorch has, whatever ``torch.cuda`` reports in a redirection."""
    count = getattr(torch._C, "_cuda_getDeviceCount", None)  # missing in CPU builds of PyTorch
    return 0 if count is None else int(count())


def add_group_backend(group: Any, device: torch.device, kind: Any, backend: Any) -> None:
    """Let a process group run ``device``'s collectives in ``backend``, and make it the default."""
    group._register_backend(device, kind, backend)
    group._set_default_backend(kind)
