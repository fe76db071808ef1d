"""Buffers: arrays that an engine's executables take and return.

This module has the :class:`Buffer`, its :class:`BufferSpec` and :class:`Device`, checks of
arguments, and the copy of host memory to a device. :mod:`.imports` decides when to copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy

from .. import dtypes
from ..dtypes import DType
from ..errors import BufferDeleted, InputMismatch, UnsupportedDtype
from . import _jaxlib
from .counters import counters

ALIGNMENT = 64
"""The alignment in bytes that host memory needs so that PJRT uses it without a copy."""


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """The shape and dtype of one argument or result, and the name that errors use for it."""

    shape: tuple[int, ...]
    dtype: DType
    name: str = ""

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"

    def label(self, position: int) -> str:
        """Return how errors refer to the argument at ``position``."""
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

    ``aliased`` is True if the memory belongs to an array outside of XLA that
    was imported without a copy. Using a buffer after its donation raises :class:`BufferDeleted`.
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
        """Return the values as a NumPy array: a read-only view on the CPU, a counted copy elsewhere."""
        self._check_alive()
        if not self.device.shares_host_memory:
            counters.copied("out", "device to host", self.array.nbytes)
        return _jaxlib.to_numpy(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        return numpy.array(self.to_numpy(), dtype=dtype, copy=copy)

    def __dlpack__(self, **_: Any) -> Any:
        """Return a DLPack capsule of the same memory; the capsule's consumer keeps the memory alive."""
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


def check_count(found: int, expected: int) -> None:
    if found != expected:
        raise InputMismatch(f"the program takes {expected} argument(s), {found} were given")


def check_buffer(buffer: Buffer, spec: BufferSpec, position: int) -> None:
    """Raise :class:`InputMismatch` if ``buffer`` does not have the shape and dtype of ``spec``."""
    if buffer.dtype == spec.dtype and buffer.shape == spec.shape:
        return
    found = BufferSpec(buffer.shape, buffer.dtype)
    raise InputMismatch(
        f"{spec.label(position)} must be {spec}, found {found}",
        hint="convert the input, or compile the program for this shape and dtype",
    )


def copy_to_device(device: Device, array: numpy.ndarray[Any, Any], reason: str) -> Buffer:
    """Copy ``array`` to ``device`` and count the copy; ``reason`` says why host memory was not shared."""
    dtype = dtypes.from_numpy(array.dtype)
    if array.size:
        counters.copied("in", reason if device.shares_host_memory else "host to device", array.nbytes)
    # The transfer may alias its source, so give it a private copy. On the host, this copy becomes the buffer.
    source = _aligned(array.shape, dtype)
    source[...] = array
    return Buffer(_jaxlib.put(source, device.handle), array.shape, dtype, device, aliased=False)


def _aligned(shape: tuple[int, ...], dtype: DType) -> numpy.ndarray[Any, Any]:
    """Return new memory, aligned so that PJRT takes it without a copy."""
    size = math.prod(shape) * dtype.itemsize
    room = numpy.empty(size + ALIGNMENT, numpy.uint8)
    first = -room.ctypes.data % ALIGNMENT
    return room[first : first + size].view(dtype.numpy).reshape(shape)
