"""Buffers: arrays that an engine's executables take and return.

What lives here: the :class:`Buffer`, its :class:`BufferSpec`, and the import of
host arrays with its rules on copies. Tensors of torch have a faster road in
:mod:`.torch_bridge`, which this module reaches only when it is handed one.

Import rules on a device whose memory is the host's (the embedded CPU):

* contiguous (row-major), 64-byte aligned, writable memory is *aliased*: no
  copy, and a later in-place write by its owner is seen by the next call;
* anything else is copied, once, and the copy is counted with its reason. Such
  a buffer has ``aliased=False``: it is a snapshot, so import again to see
  later writes.

On any other device every import is a counted copy.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from .. import dtypes
from ..dtypes import DType
from ..errors import BufferDeleted, InputMismatch, UnsupportedDtype
from . import _jaxlib
from .counters import counters

ALIGNMENT = 64
"""Bytes; PJRT copies host memory that is aligned to less."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """Shape and dtype of one argument or result, with the name used in errors."""

    shape: tuple[int, ...]
    dtype: DType
    name: str = ""

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def label(self, position: int) -> str:
        """How errors call the argument at ``position``."""
        return f"argument {position}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True)
class Device:
    """One device of one PJRT client.

    ``name`` is ``platform:index``; ``shares_host_memory`` says that host arrays
    can be aliased; ``handle`` is jaxlib's own device.
    """

    name: str
    platform: str
    shares_host_memory: bool
    handle: Any


class Buffer:
    """An array in the memory of one device, owned by XLA or imported.

    ``aliased`` is True where the memory belongs to an array outside of XLA that
    was imported without a copy. Use after donation raises :class:`BufferDeleted`.
    """

    __slots__ = ("aliased", "array", "device", "dtype", "shape")

    def __init__(
        self, array: Any, shape: tuple[int, ...], dtype: DType, device: Device, aliased: bool
    ) -> None:
        self.array = array
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.aliased = aliased

    def __repr__(self) -> str:
        state = ", deleted" if self.is_deleted() else ", aliased" if self.aliased else ""
        return f"Buffer({BufferSpec(self.shape, self.dtype)} on {self.device.name}{state})"

    def is_deleted(self) -> bool:
        """Whether the memory was given away: donated to an execution, or deleted."""
        return bool(self.array.is_deleted())

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """The values in a NumPy array: a read-only view on the CPU, a counted copy elsewhere."""
        self._check_alive()
        if not self.device.shares_host_memory:
            counters.copied("out", "device to host", self.array.nbytes)
        return _jaxlib.to_numpy(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        return numpy.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **_: Any) -> Any:
        """A DLPack capsule of the same memory, kept alive by its consumer."""
        self._check_alive()
        if self.dtype in dtypes.SUB_BYTE:
            raise UnsupportedDtype(f"DLPack has no {self.dtype}", hint="use to_numpy()")
        return _jaxlib.export_dlpack(self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        found: tuple[int, int] = self.array.__dlpack_device__()
        return found

    def _check_alive(self) -> None:
        if self.is_deleted():
            raise BufferDeleted(
                f"{BufferSpec(self.shape, self.dtype)} on {self.device.name} was used after its donation",
                hint="use the execution's result instead, or compile without donation",
            )


def import_array(device: Device, array: Any) -> Buffer:
    """A :class:`Buffer` with the values of ``array`` on ``device``.

    ``array`` is a :class:`Buffer` of the same device (returned as it is), a
    NumPy array or scalar (dtypes of ml_dtypes included), a torch tensor, or anything with
    ``__dlpack__``. Raises :class:`UnsupportedDtype`, :class:`UnsupportedLayout`
    for tensors that are not strided, and :class:`InputMismatch` for what is no
    array at all.
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


def check_count(found: int, expected: int) -> None:
    if found != expected:
        raise InputMismatch(f"the program takes {expected} argument(s), {found} were given")


def check_buffer(buffer: Buffer, spec: BufferSpec, position: int) -> None:
    """Raise :class:`InputMismatch` where ``buffer`` is not what ``spec`` asks for."""
    if buffer.dtype == spec.dtype and buffer.shape == spec.shape:
        return
    found = BufferSpec(buffer.shape, buffer.dtype)
    raise InputMismatch(
        f"{spec.label(position)} must be {spec}, found {found}",
        hint="convert the input, or compile the program for this shape and dtype",
    )


@functools.lru_cache(maxsize=256)
def _is_torch_tensor(cls: type) -> bool:
    """Whether ``cls`` is torch's Tensor or a subclass, without importing torch."""
    return any(
        base.__module__ in ("torch", "torch._tensor") and base.__name__ == "Tensor" for base in cls.__mro__
    )


def copy_to_device(device: Device, array: numpy.ndarray[Any, Any], reason: str) -> Buffer:
    """A copy of ``array`` on ``device``, counted; ``reason`` is why host memory was not shared."""
    dtype = dtypes.from_numpy(array.dtype)
    if array.size:
        counters.copied("in", reason if device.shares_host_memory else "host to device", array.nbytes)
    # The transfer may alias its source, so it gets a private one; on the host that becomes the buffer.
    source = _aligned(array.shape, dtype)
    source[...] = array
    return Buffer(_jaxlib.put(source, device.handle), array.shape, dtype, device, aliased=False)


def _aligned(shape: tuple[int, ...], dtype: DType) -> numpy.ndarray[Any, Any]:
    """New memory that PJRT takes without a copy."""
    size = math.prod(shape) * dtype.itemsize
    room = numpy.empty(size + ALIGNMENT, numpy.uint8)
    first = -room.ctypes.data % ALIGNMENT
    return room[first : first + size].view(dtype.numpy).reshape(shape)


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
    """The reason for which ``array`` must be copied, or None."""
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
    """Import through NumPy, which knows strides, or straight from the capsule where NumPy lacks the dtype."""
    try:
        return _import_numpy(device, numpy.from_dlpack(array))
    except (BufferError, RuntimeError, TypeError):
        handle = _jaxlib.import_dlpack(array.__dlpack__(), device.handle, None, None)
    values = _jaxlib.to_numpy(handle)
    return copy_to_device(device, values, "dtype without DLPack in NumPy")
