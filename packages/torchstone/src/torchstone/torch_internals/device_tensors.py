"""Make tensors of a device that is written in Python, and move them onto other storages.

The plain way to make a tensor is to put a storage under an empty one. The dispatcher takes four times as long
for that as PyTorch takes to write a DLPack record of a tensor, which holds sizes, strides, a dtype and a null
pointer, and to read it: that makes a tensor with a storage of its own.
"""

from __future__ import annotations

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
_to_capsule = Internal("torch._C._to_dlpack", _QUICK)
_keys = Internal("torch._C._dispatch_keys", _QUICK)


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

    from_capsule, to_capsule = _from_capsule.find(), _to_capsule.find()
    if from_capsule is not None and to_capsule is not None:
        example = slow(None)
        capsule = functools.partial(to_capsule, example)
        with suppress(Exception):  # this PyTorch may be unable to write or read such a record
            if _describe(from_capsule(capsule())) == _describe(example):
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


def _describe(tensor: torch.Tensor) -> Any:
    where = tensor.dtype, tensor.device, tensor.shape, tensor.stride(), tensor.storage_offset()
    return where, tensor.untyped_storage().nbytes(), _keys(tensor).raw_repr()
