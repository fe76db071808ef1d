"""Imports host arrays into buffers; the rules on copies are below.

Torch tensors are imported by :mod:`.torch_bridge`, which is faster for them. This module imports it only
when it gets a torch tensor.

Import rules on a device whose memory is the host's (the embedded CPU):

* contiguous (row-major), 64-byte aligned, writable memory is *aliased*: there is
  no copy, and the next call sees later in-place writes by the memory's owner;
* anything else is copied once, and the copy is counted with its reason. Such
  a buffer has ``aliased=False``. It is a snapshot: import the array again to see
  later writes.

On any other device, every import of host memory is a counted copy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy

from .. import dtypes
from ..errors import InputMismatch
from . import _jaxlib
from .buffers import ALIGNMENT, Buffer, Device, copy_to_device
from .counters import counters


def import_array(device: Device, array: Any) -> Buffer:
    """Return a :class:`Buffer` with the values of ``array`` on ``device``.

    ``array`` is a :class:`Buffer` (returned as it is if it is on the same device), a
    NumPy array or scalar (dtypes of ml_dtypes included), a torch tensor, or anything with
    ``__dlpack__``. Raises :class:`UnsupportedDtype`, :class:`UnsupportedLayout`
    for tensors that are not strided, and :class:`InputMismatch` for objects that are
    not arrays.
    """
    if isinstance(array, Buffer):
        if array.device is not device and array.device != device:
            counters.copied("in", "other device", array.array.nbytes)
            return import_array(device, array.to_numpy())
        return array
    if isinstance(array, (numpy.ndarray, numpy.generic)):
        return _import_numpy(device, numpy.asarray(array))
    cls: Any = type(array)
    if _is_torch_tensor(cls):
        from .torch_bridge import import_tensor

        return import_tensor(device, array)
    if hasattr(array, "__dlpack__"):
        return _import_dlpack(device, array)
    raise InputMismatch(
        f"{type(array).__name__} is not an array",
        hint="pass a NumPy array, a torch tensor, a Buffer, or an object with __dlpack__",
    )


@functools.lru_cache(maxsize=256)
def _is_torch_tensor(cls: type) -> bool:
    """Whether ``cls`` is torch's Tensor or a subclass, without importing torch."""
    return any(
        base.__module__ in ("torch", "torch._tensor") and base.__name__ == "Tensor" for base in cls.__mro__
    )


def _import_numpy(device: Device, array: numpy.ndarray[Any, Any]) -> Buffer:
    dtype = dtypes.from_numpy(array.dtype)
    reason = _why_not_aliased(device, array)
    if reason is None:
        in_dlpack = array.dtype.isbuiltin == 1
        handle = (
            _jaxlib.import_dlpack(array.__dlpack__(), device.handle, None, False)
            if in_dlpack
            else _jaxlib.put(array, device.handle)
        )
        return Buffer(handle, array.shape, dtype, device, aliased=True)
    return copy_to_device(device, array, reason)


def _why_not_aliased(device: Device, array: numpy.ndarray[Any, Any]) -> str | None:
    """Return the reason why ``array`` must be copied, or None if it need not be."""
    checks: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("host to device", lambda: not device.shares_host_memory),
        ("empty", lambda: array.size == 0),
        ("byte order", lambda: not array.dtype.isnative),
        ("strided", lambda: not array.flags.c_contiguous),
        ("read-only", lambda: not array.flags.writeable),
        ("unaligned", lambda: array.__array_interface__["data"][0] % ALIGNMENT != 0),
    )
    return next((reason for reason, applies in checks if applies()), None)


def _import_dlpack(device: Device, array: Any) -> Buffer:
    """Import through NumPy, which handles strides, or from the capsule itself if NumPy lacks the dtype."""
    try:
        return _import_numpy(device, numpy.from_dlpack(array))
    except (BufferError, RuntimeError, TypeError):
        handle = _jaxlib.import_dlpack(array.__dlpack__(), device.handle, None, None)
    values = _jaxlib.to_numpy(handle)
    return copy_to_device(device, values, "dtype without DLPack in NumPy")
