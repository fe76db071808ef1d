"""Memory of a GPU that PyTorch and PJRT both use: which it is, and in what order they use it.

PyTorch queues its work on a current stream, PJRT on streams of its own. :func:`engine_waits` lets what PJRT
starts from now on follow what PyTorch has queued, :func:`torch_waits` the other way round. The GPU waits, the
host does not.
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
    """PyTorch's name for the memory of ``device``; None where it is the host's or out of PyTorch's reach."""
    if device.shares_host_memory or device.platform not in _GPUS:
        return None
    index = int(device.handle.local_hardware_id)
    return torch.device("cuda", index) if index < devices.gpu_count() else None


def is_here(device: Device, tensor: torch.Tensor) -> bool:
    """Whether a tensor with elements lies in the memory of an accelerator."""
    return not tensor.is_cpu and tensor.device == torch_device(device) and tensor.numel() > 0


def engine_waits(device: Device) -> None:
    """Arrays that :func:`taken` makes from now on are ready when PyTorch's work of now is done."""
    _external_stream(device).wait_stream(torch.cuda.current_stream(torch_device(device)))


def taken(device: Device, tensor: torch.Tensor) -> Any:
    """The array over the memory of a contiguous tensor that :func:`is_here`; it keeps the tensor alive."""
    return _jaxlib.import_dlpack(_to_dlpack(tensor), device.handle, _external_stream(device).cuda_stream)


def shown(device: Device, array: Any) -> torch.Tensor:
    """A tensor over the memory of ``array``, for work that PyTorch's current stream does from now on."""
    return _from_dlpack(_exported(device, array))


def torch_waits(device: Device, array: Any) -> None:
    """What PyTorch's current stream does from now on follows the program that makes ``array``."""
    _exported(device, array)


def host_waits(device: Device) -> None:
    """Return when PyTorch's current stream has done its work.

    Before memory is written by a transfer: what PyTorch still reads there may have been freed already.
    """
    torch.cuda.current_stream(torch_device(device)).synchronize()


def _exported(device: Device, array: Any) -> Any:
    return _jaxlib.export_dlpack(array, stream=torch.cuda.current_stream(torch_device(device)).cuda_stream)


@functools.cache
def _external_stream(device: Device) -> torch.cuda.ExternalStream:
    """The stream on which PJRT looks for work of others, chosen once: PJRT has several."""
    stream = device.handle.get_stream_for_external_ready_events()
    return torch.cuda.ExternalStream(stream, device=torch_device(device))
