"""Shares the memory of a GPU between PyTorch and PJRT, and keeps their uses of it in order.

PyTorch queues its work on a current stream, and PJRT on its own streams. With :func:`engine_waits`, work that
PJRT starts from now on runs after the work that PyTorch has queued; :func:`torch_waits` does the opposite.
Only the GPU waits, not the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..torch_internals import devices, tensors
from . import _jaxlib
from .buffers import Device

_GPUS = frozenset({"cuda", "rocm", "gpu"})
"""Platforms whose memory PyTorch calls ``cuda``."""

_to_dlpack: Callable[[torch.Tensor], Any] = tensors.to_dlpack.get()
_from_dlpack: Callable[[Any], torch.Tensor] = tensors.from_dlpack.get()


@functools.cache
def torch_device(device: Device) -> torch.device | None:
    """Return PyTorch's device with the memory of ``device``; None for host memory, or if PyTorch has none."""
    if device.shares_host_memory or device.platform not in _GPUS:
        return None
    index = int(device.handle.local_hardware_id)
    return torch.device("cuda", index) if index < devices.gpu_count() else None


def is_here(device: Device, tensor: torch.Tensor) -> bool:
    """Whether ``tensor`` has elements and is in the memory of the GPU ``device``."""
    return not tensor.is_cpu and tensor.device == torch_device(device) and tensor.numel() > 0


def engine_waits(device: Device) -> None:
    """Make arrays from :func:`taken` wait, from now on, for the work that PyTorch has queued until now."""
    _external_stream(device).wait_stream(torch.cuda.current_stream(torch_device(device)))


def taken(device: Device, tensor: torch.Tensor) -> Any:
    """Return an array over the memory of a contiguous tensor that :func:`is_here`; it keeps that alive."""
    return _jaxlib.import_dlpack(_to_dlpack(tensor), device.handle, _external_stream(device).cuda_stream)


def shown(device: Device, array: Any) -> torch.Tensor:
    """Return a tensor over the memory of ``array``, for work on PyTorch's current stream from now on."""
    return _from_dlpack(_exported(device, array))


def torch_waits(device: Device, array: Any) -> None:
    """Make later work on PyTorch's current stream wait for the program that computes ``array``."""
    _exported(device, array)


def host_waits(device: Device) -> None:
    """Let the host wait until PyTorch's current stream has done its work.

    Call this before a transfer writes memory: it may be memory that PyTorch has freed but still reads.
    """
    torch.cuda.current_stream(torch_device(device)).synchronize()


def _exported(device: Device, array: Any) -> Any:
    return _jaxlib.export_dlpack(array, stream=torch.cuda.current_stream(torch_device(device)).cuda_stream)


@functools.cache
def _external_stream(device: Device) -> torch.cuda.ExternalStream:
    """Return the stream on which PJRT waits for others' work; chosen once, because PJRT has several."""
    stream = device.handle.get_stream_for_external_ready_events()
    return torch.cuda.ExternalStream(stream, device=torch_device(device))
