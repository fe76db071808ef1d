"""Storages and tensors of the device.

A storage is a :class:`Box` around one flat immutable array on the engine. For PyTorch it is a storage
without memory, which has the box as an attribute. A tensor is a plain PyTorch tensor (size, stride, offset)
on this storage, so views, ``_base`` and version counters need no code here. Writing replaces the box's array.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import dtypes
from ..config import config
from ..dtypes import DType
from ..errors import EngineError
from ..torch_internals import device_tensors
from . import engine

DEVICE_TYPE = "pjrt"


class Pending:
    """An array yet to be computed: one result of a batch of calls (:mod:`.lazy`) that runs when needed."""

    __slots__ = ("_array", "_failure", "allocation", "batch", "number", "uncounted")

    batch: Any
    number: int
    uncounted: int
    """The bytes that memory statistics count once the batch has run; 0 if they count the box already."""
    allocation: Allocation | None
    _array: Any
    _failure: str  # not an error, because its traceback would keep alive the tensors of its frames

    def array(self) -> Any:
        """Return the array. Raises the error that stopped the batch, and ``RuntimeError`` from then on."""
        batch = self.batch
        if batch is not None:
            batch.run()
            if self.batch is not None:
                raise RuntimeError("this tensor has no values: the calls that make it are running")
        if self._failure:
            raise RuntimeError(
                "this tensor has no values: the call that makes it was left out when an earlier one failed"
                f" with {self._failure}"
            )
        return self._array

    def resolve(self, array: Any, error: BaseException | None = None) -> None:
        """Take the result of the batch that has run, or the error that stopped it."""
        self._array = array
        self.allocation = new_allocation(self.uncounted) if self.uncounted and error is None else None
        self._failure = "" if error is None else f"{type(error).__name__}: {error}"
        self.batch = None


def pending_result(batch: Any, number: int, uncounted: int) -> Pending:
    """Return the result of a batch that has this number. A method ``__init__`` would take twice as long."""
    made = Pending()
    made.batch = batch
    made.number = number
    made.uncounted = uncounted
    return made


class Allocation:
    """Bytes that the memory statistics count until this object dies."""

    __slots__ = ("nbytes",)

    nbytes: int

    def __del__(self) -> None:
        memory.allocated -= self.nbytes
        memory.freed += 1


def new_allocation(nbytes: int) -> Allocation:
    """Count ``nbytes`` from now on."""
    made = Allocation()
    made.nbytes = nbytes
    memory.allocated += nbytes
    if memory.allocated > memory.peak:
        memory.peak = memory.allocated
    memory.allocations += 1
    return made


class Box:
    """The contents of one storage.

    ``array`` is flat and holds all ``nbytes`` as elements of ``dtype``. It is None until something is
    written, which reads as zeros, and a :class:`Pending` until the call that writes it has run.
    ``allocation`` is None until the call that makes the box has run.
    """

    __slots__ = ("__weakref__", "allocation", "array", "dtype", "nbytes")

    allocation: Allocation | None
    array: Any
    dtype: DType
    nbytes: int

    def replace(self, array: Any, dtype: DType) -> None:
        """Hold the array that a program wrote."""
        self.array = array
        self.dtype = dtype

    def ready(self) -> Any:
        """Return the array; runs pending calls first, and makes zeros if nothing was written."""
        promise = self.array
        if type(promise) is Pending:
            array = promise.array()
            if promise.uncounted:
                self.allocation = promise.allocation
            self.array = array
        if self.array is None:
            self.array = zeros(self.nbytes // self.dtype.itemsize, self.dtype)
        return self.array

    def grow(self, nbytes: int, *, keep: bool = True) -> None:
        """Grow to at least ``nbytes``; new bytes are zero. Without ``keep``, the caller writes all bytes."""
        if nbytes <= self.nbytes:
            return
        memory.require(nbytes - self.nbytes)
        if keep and self.array is not None:
            self.array, self.dtype = engine.grown(self.ready(), self.dtype, nbytes)
        self.nbytes = nbytes
        self.allocation = new_allocation(nbytes)


def new_box(array: Any, dtype: DType, nbytes: int) -> Box:
    """Return a box that holds ``array``. A method ``__init__`` would take longer.

    Raises ``torch.OutOfMemoryError`` if that exceeds ``config.device_memory_limit``.
    """
    if config.device_memory_limit:
        memory.require(nbytes)
    box = Box()
    box.allocation = None if type(array) is Pending and array.uncounted else new_allocation(nbytes)
    box.array = array
    box.dtype = dtype
    box.nbytes = nbytes
    return box


def zeros(count: int, dtype: DType) -> Any:
    """Return a flat array of zeros. Raises ``torch.OutOfMemoryError`` if the device has no room for it."""
    try:
        return engine.zeros(count, dtype)
    except EngineError as error:
        raise memory.exceeded(error) from error


class Memory:
    """The number of bytes in boxes, counted as an allocator would. See :class:`Allocation`."""

    def __init__(self) -> None:
        self.allocated = 0
        self.peak = 0
        self.allocations = 0
        self.freed = 0

    @staticmethod
    def exceeded(error: EngineError) -> Exception:
        """Return ``error``, or a ``torch.OutOfMemoryError`` if it says that the device is out of memory."""
        if "RESOURCE_EXHAUSTED" not in str(error):
            return error
        return torch.OutOfMemoryError(
            f"pjrt out of memory, with {memory.allocated} bytes in use by tensors. {error}\n"
            "  next: free tensors, or use smaller ones"
        )

    def require(self, nbytes: int) -> None:
        """Raise ``torch.OutOfMemoryError`` if ``nbytes`` more would exceed ``config.device_memory_limit``."""
        limit = config.device_memory_limit
        if limit and nbytes + self.allocated > limit:
            raise torch.OutOfMemoryError(
                f"pjrt out of memory. Tried to allocate {nbytes} bytes; {self.allocated} of {limit} bytes are"
                " in use\n  next: free tensors, or raise config.device_memory_limit"
            )


memory = Memory()

_device: Any = None


def device() -> torch.device:
    """Return the one device."""
    global _device
    if _device is None:
        _device = torch.device(DEVICE_TYPE, 0)
    return _device


def new_storage(box: Box) -> torch.UntypedStorage:
    """Return a storage that holds ``box``."""
    storage = device_tensors.storage_of_size(device(), box.nbytes)
    storage.box = box
    return storage


def empty_storage(nbytes: int) -> torch.UntypedStorage:
    """Return a storage of ``nbytes`` without values."""
    return new_storage(new_box(None, dtypes.UINT8, nbytes))


def new_tensor(
    array: Any,
    element: DType,
    dtype: torch.dtype,
    nbytes: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
) -> torch.Tensor:
    """Return a tensor on a new storage that holds ``array``."""
    tensor = device_tensors.plain(device(), dtype, size, stride, nbytes)
    tensor.untyped_storage().box = new_box(array, element, nbytes)  # type: ignore[attr-defined]
    return tensor


def tensor_maker(
    maker: tuple[Callable[[Any], torch.Tensor], Callable[[], Any]], element: DType, nbytes: int
) -> Callable[[Any], torch.Tensor]:
    """Return a function from an array to a tensor, like :func:`new_tensor` but faster for repeated calls.

    ``maker`` is what :func:`~torchstone.torch_internals.device_tensors.maker` returns.
    """
    read, source = maker

    def holding(array: Any) -> torch.Tensor:
        tensor = read(source())
        tensor.untyped_storage().box = new_box(array, element, nbytes)  # type: ignore[attr-defined]
        return tensor

    return holding


def box_of(tensor: torch.Tensor) -> Box:
    """Return the box of a device tensor's storage."""
    return box_in(tensor.untyped_storage())


def box_in(storage: Any) -> Box:
    """Return the box of a device storage. A storage that PyTorch itself made gets an empty box first.

    Raises ``RuntimeError`` for a storage of another device.
    """
    try:
        return storage.box
    except AttributeError:
        if storage.device.type != DEVICE_TYPE:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices,"
                f" {DEVICE_TYPE}:0 and {storage.device}!"
            ) from None
        storage.box = new_box(None, dtypes.UINT8, storage.nbytes())
        return storage.box
