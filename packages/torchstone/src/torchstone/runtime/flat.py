"""Flat arrays of a device from and to torch, unchecked, for the storages of the eager device.

An array made here is the device's own: it shares memory with a tensor only where the caller gives that
tensor away, and what is handed out is for reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import torch

from ..dtypes import DType
from ..torch_internals import tensors
from . import _jaxlib
from .buffers import Device

_to_dlpack: Callable[[torch.Tensor], Any] = tensors.to_dlpack.get()
_from_dlpack: Callable[[Any], torch.Tensor] = tensors.from_dlpack.get()


def from_torch(device: Device, given_away: torch.Tensor) -> Any:
    """The values of a contiguous CPU tensor that nobody writes from now on, as a flat array."""
    flat = given_away.reshape(-1)
    if device.shares_host_memory:
        return _jaxlib.import_dlpack(_to_dlpack(flat), device.handle, None, None)
    return _jaxlib.put(_numpy(flat), device.handle)


def to_torch(device: Device, array: Any, dtype: DType) -> torch.Tensor:
    """A flat CPU tensor with the values of ``array``, to be read only: it may be the same memory."""
    if device.shares_host_memory:
        return _from_dlpack(_jaxlib.export_dlpack(array))
    values = numpy.array(_jaxlib.to_numpy(array), copy=True)
    return torch.from_numpy(values.reshape(-1).view(numpy.uint8)).view(dtype.torch)


def from_number(device: Device, value: float, dtype: numpy.dtype[Any]) -> Any:
    """A 0-d array."""
    return _jaxlib.put(numpy.asarray(value, dtype), device.handle)


def from_words(device: Device, words: numpy.ndarray[Any, Any]) -> Any:
    """A copy of a small NumPy array, such as a seed."""
    return _jaxlib.put(words, device.handle)


def value_of(array: Any) -> Any:
    """The only element, as a Python number."""
    return _jaxlib.to_numpy(array).item()


def wait(array: Any) -> None:
    """Return when the array's values are there."""
    array.block_until_ready()


def is_ready(array: Any) -> bool:
    """Whether the array's values are there."""
    return bool(array.is_ready())


def memory_of(device: Device) -> tuple[int, int] | None:
    """Bytes in use on a device and bytes in all; None where its plugin does not count them."""
    return _jaxlib.device_memory(device.handle)


def _numpy(flat: torch.Tensor) -> numpy.ndarray[Any, Any]:
    if not flat.numel():
        return numpy.empty(0, _dtype(flat).numpy)
    return flat.view(torch.uint8).numpy().view(_dtype(flat).numpy)


def _dtype(tensor: torch.Tensor) -> DType:
    from .. import dtypes

    return dtypes.from_torch(tensor.dtype)
