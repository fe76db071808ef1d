"""Converts flat arrays of a device from and to torch without checks, for the storages of the eager device.

An array made here belongs to the device. It shares memory with a tensor only if the caller gave that
tensor away. Tensors that are returned must only be read.
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
    """Return the values of a contiguous CPU tensor, which nobody may write from now on, as a flat array."""
    flat = given_away.reshape(-1)
    if device.shares_host_memory:
        return _jaxlib.import_dlpack(_to_dlpack(flat), device.handle, None, None)
    return _jaxlib.put(_numpy(flat), device.handle)


def to_torch(device: Device, array: Any, dtype: DType) -> torch.Tensor:
    """Return a flat CPU tensor with the values of ``array``; only read it, as it may share the memory."""
    if device.shares_host_memory:
        return _from_dlpack(_jaxlib.export_dlpack(array))
    values = numpy.array(_jaxlib.to_numpy(array), copy=True)
    return torch.from_numpy(values.reshape(-1).view(numpy.uint8)).view(dtype.torch)


def from_number(device: Device, value: float, dtype: numpy.dtype[Any]) -> Any:
    """Return a number as a 0-d array."""
    return _jaxlib.put(numpy.asarray(value, dtype), device.handle)


def from_words(device: Device, words: numpy.ndarray[Any, Any]) -> Any:
    """Copy a small NumPy array, such as a seed, to the device."""
    return _jaxlib.put(words, device.handle)


def value_of(array: Any) -> Any:
    """Return the array's only element as a Python number."""
    return _jaxlib.to_numpy(array).item()


def wait(array: Any) -> None:
    """Wait until the array's values are computed."""
    array.block_until_ready()


def is_ready(array: Any) -> bool:
    """Whether the array's values are computed."""
    return bool(array.is_ready())


def memory_of(device: Device) -> tuple[int, int] | None:
    """Return the bytes in use on a device and its total; None if its plugin does not count them."""
    return _jaxlib.device_memory(device.handle)


def _numpy(flat: torch.Tensor) -> numpy.ndarray[Any, Any]:
    if not flat.numel():
        return numpy.empty(0, _dtype(flat).numpy)
    return flat.view(torch.uint8).numpy().view(_dtype(flat).numpy)


def _dtype(tensor: torch.Tensor) -> DType:
    from .. import dtypes

    return dtypes.from_torch(tensor.dtype)
