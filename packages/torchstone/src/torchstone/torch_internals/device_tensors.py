"""Make tensors of a device that is written in Python, and move them onto other storages.

The plain way to make a tensor is to put a storage under an empty one. The dispatcher takes four times as long
for that as PyTorch takes to read a DLPack record, which holds sizes, strides, a dtype and a null pointer.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from . import dynamo
from .dispatch import DispatchKey
from .probing import Internal

_DEVICE = "the pjrt device"
_empty_tensor = Internal("torch._C._acc.create_empty_tensor", _DEVICE).get()
_storage_of_size = Internal("torch._C._construct_storage_from_data_pointer", _DEVICE).get()
_set_storage = torch.ops.aten.set_.source_Storage_storage_offset.redispatch
_CPU = torch._C.DispatchKeySet(DispatchKey.CPU)
_QUICK = "quick calls on the pjrt device"
_from_capsule = Internal("torch._C._from_dlpack", _QUICK)
_keys = Internal("torch._C._dispatch_keys", _QUICK)
_NAME = b"dltensor"
_PRIVATE_DEVICE = 12
"""``kDLExtDev``, which PyTorch reads as PrivateUse1."""
_MOST = 4096
"""The largest number of records. Each lives until the process ends: PyTorch reads it when a tensor dies."""
_INTEGER, _UNSIGNED, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_DTYPES = {
    torch.bool: (_BOOL, 8),
    torch.uint8: (_UNSIGNED, 8),
    torch.int8: (_INTEGER, 8),
    torch.int16: (_INTEGER, 16),
    torch.int32: (_INTEGER, 32),
    torch.int64: (_INTEGER, 64),
    torch.float16: (_FLOAT, 16),
    torch.bfloat16: (_BFLOAT, 16),
    torch.float32: (_FLOAT, 32),
    torch.float64: (_FLOAT, 64),
    torch.complex64: (_COMPLEX, 64),
    torch.complex128: (_COMPLEX, 128),
}
Geometry = tuple[torch.device, torch.dtype, tuple[int, ...], tuple[int, ...]]


class _Record(ctypes.Structure):
    """``DLManagedTensor`` of dlpack.h, with its nested structures written flat."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


_capsule = ctypes.pythonapi["PyCapsule_New"]  # called with ctypes objects, which need no conversion
_capsule.restype = ctypes.py_object
_records: dict[Geometry, _Record] = {}


def storage_of_size(device: torch.device, nbytes: int) -> Any:
    """Return a storage that says it has ``nbytes`` but has no memory."""
    return _storage_of_size(0, device, nbytes)


def tensor_on(storage: Any, dtype: torch.dtype, size: Any, stride: Any, offset: Any) -> torch.Tensor:
    """Return a tensor on the given storage."""
    return put_on(_empty_tensor((0,), dtype), storage, size, stride, offset)


def put_on(tensor: torch.Tensor, storage: Any, size: Any, stride: Any, offset: Any) -> torch.Tensor:
    """Move ``tensor`` onto another storage, in place, and return it."""
    moved: torch.Tensor = _set_storage(_CPU, tensor, storage, offset, size, stride)
    return moved


def plain(
    device: torch.device, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], nbytes: int
) -> torch.Tensor:
    """Return a tensor on a new storage of ``nbytes`` without memory."""
    return tensor_on(_storage_of_size(0, device, nbytes), dtype, size, stride, 0)


def maker(
    device: torch.device, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int], nbytes: int
) -> tuple[Callable[[Any], torch.Tensor], Callable[[], Any]]:
    """Return functions ``read`` and ``source`` such that ``read(source())`` makes tensors as :func:`plain`.

    They are the fastest that this PyTorch has. They are two, because one that calls both would take longer.
    """

    def slow(_: Any) -> torch.Tensor:
        return plain(device, dtype, size, stride, nbytes)

    record = _record(device, dtype, size, stride)
    from_capsule = _from_capsule.find()
    if record is not None and from_capsule is not None:
        address = ctypes.c_void_p(ctypes.addressof(record))
        capsule = functools.partial(_capsule, address, ctypes.c_char_p(_NAME), None)
        with suppress(Exception):  # this PyTorch may be unable to read such a record
            if _describe(from_capsule(capsule())) == _describe(slow(None)):
                return from_capsule, capsule
    return slow, lambda: None


def alike(tensors: Sequence[torch.Tensor]) -> Callable[..., bool] | None:
    """Return a function that says whether it is given such tensors, or None if this PyTorch has none.

    It compares, in one call of C++, their number, types, dtypes, sizes, strides, devices, dispatch keys (with
    the bits of negative and conjugate views), and whether they require gradients. It does not compare storage
    offsets, and answers False if it is given one tensor twice.
    """
    guards = dynamo.TensorGuards.find()
    if guards is None:
        return None
    sizes, strides = [list(one.shape) for one in tensors], [list(one.stride()) for one in tensors]
    found: Callable[..., bool] = guards(
        *tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides
    ).check
    return found


def _record(
    device: torch.device, dtype: torch.dtype, size: Sequence[int], stride: Sequence[int]
) -> _Record | None:
    geometry = (device, dtype, tuple(size), tuple(stride))
    record = _records.get(geometry)
    if record is None and dtype in _DTYPES and len(_records) < _MOST:
        code, bits = _DTYPES[dtype]
        axes = ctypes.c_int64 * len(size)
        where = (None, _PRIVATE_DEVICE, device.index or 0)
        made = _Record(*where, len(size), code, bits, 1, axes(*size), axes(*stride), 0, None, None)
        record = _records.setdefault(geometry, made)  # keep another thread's record, as tensors may use it
    return record


def _describe(tensor: torch.Tensor) -> Any:
    where = tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.storage_offset()
    return where, tensor.untyped_storage().nbytes(), _keys(tensor).raw_repr()
