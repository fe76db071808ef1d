"""Tracking the CUDA device on which the redirected code put each tensor, though all are really on the CPU.

A *place* is the index of a CUDA device, :data:`HOST` for the CPU, or None for a tensor that no redirected
call has made (for example, the result of a scripted function). The place is kept on the storage, so views,
detached tensors and parameters share it, and it is gone when the memory is freed. :func:`device_of` encodes a
place as a device that PyTorch's own code can pass around: ``cpu`` with an index that no CPU has.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch

from ..torch_internals import dispatch, redirection
from .accounts import Account
from .options import LIMIT

HOST = -1
_FIRST = 64
_ATTRIBUTE = "_torchstone_place"
_CPU = torch.device("cpu")
_DEVICES = tuple(torch.device("cpu", _FIRST + place) for place in range(LIMIT))
_CUDA = tuple(torch.device("cuda", index) for index in range(LIMIT))
_storage_of = torch.Tensor.untyped_storage
_PLAIN = (torch.Tensor, torch.nn.Parameter)

Place = int | None


class MeshType(str):
    """The device type of a mesh for CUDA: the CPU to PyTorch's code, but CUDA in redirected calls."""


ACCOUNTS = tuple(Account() for _ in range(LIMIT))
"""The memory of each CUDA device."""


class _Mark:
    """The place of one storage on a CUDA device; the account counts its bytes until the storage is freed."""

    __slots__ = ("bytes", "place")

    def __init__(self, place: int, size: int) -> None:
        self.place, self.bytes = place, size
        ACCOUNTS[place].add(size)

    def __del__(self) -> None:
        ACCOUNTS[self.place].remove(self.bytes)


class _Fixed:
    """A mark without an account, for storages that are known to be on the CPU or that have no place."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.place = place


_ON_HOST, _NOWHERE = _Fixed(HOST), _Fixed(None)


def device_of(place: int) -> torch.device:
    """Return the device, of type ``cpu``, that stands for a place in calls to PyTorch."""
    return _CPU if place == HOST else _DEVICES[place]


def place_of_device(device: torch.device) -> Place:
    """The inverse of :func:`device_of`; None for a device that is not the CPU."""
    if device.type != "cpu":
        return None
    index = device.index
    return HOST if index is None or index < _FIRST else index - _FIRST


def parsed(asked: Any) -> torch.device:
    """Return PyTorch's own ``torch.device(asked)``, whatever modes this thread is in."""
    if isinstance(asked, torch.device):
        return asked
    return _parsed(asked) if torch.compiler.is_dynamo_compiling() else _parsed_once(asked)


def _parsed(asked: str) -> torch.device:
    with dispatch.without_function_modes():
        return torch.device(asked)


_parsed_once = functools.cache(_parsed)  # Dynamo ignores such a cache, and warns


def cuda(index: int) -> torch.device:
    """The device that redirected code is shown for the CUDA device ``index``."""
    return _CUDA[index]


def place_of(tensor: torch.Tensor) -> Place:
    """Return the place where redirected code put a tensor."""
    if type(tensor) not in _PLAIN:
        for part in _parts(tensor):
            return place_of(part)
    return getattr(_memory_of(tensor), _ATTRIBUTE, _NOWHERE).place


def place_of_storage(storage: torch.UntypedStorage) -> Place:
    """Return the place where redirected code put a storage."""
    return getattr(storage, _ATTRIBUTE, _NOWHERE).place


def put(tensor: torch.Tensor, place: int) -> None:
    """Set the place of a tensor's memory unless it has one already: memory never changes its place."""
    if type(tensor) not in _PLAIN:
        parts = tuple(_parts(tensor))
        for part in parts:
            put(part, place)
        if parts:
            return
    storage = _memory_of(tensor)
    if storage is not None and not hasattr(storage, _ATTRIBUTE) and tensor.is_cpu:
        put_storage(storage, place)


def put_storage(storage: torch.UntypedStorage, place: int) -> None:
    """Like :func:`put`, for a storage in CPU memory."""
    if not hasattr(storage, _ATTRIBUTE):
        setattr(storage, _ATTRIBUTE, _ON_HOST if place == HOST else _Mark(place, storage.nbytes()))


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield the tensors inside a wrapper such as ``DTensor``; nothing for any other tensor."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is not None:
        parts = (getattr(tensor, name) for name in flatten()[0])
        yield from (part for part in parts if isinstance(part, torch.Tensor))


def _memory_of(tensor: torch.Tensor) -> Any:
    try:
        if type(tensor) in _PLAIN:
            return _storage_of(tensor)
        with redirection.without_subclasses():
            return _storage_of(tensor)
    except (RuntimeError, NotImplementedError):
        return _storage_of_values(tensor)


def _storage_of_values(tensor: torch.Tensor) -> Any:
    """Return the storage inside a ``torch.func`` wrapper or of a sparse tensor's values; else None."""
    tensor = redirection.unwrapped(tensor)
    try:
        if tensor.layout is torch.strided:
            return _storage_of(tensor)
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
        return _storage_of(values)
    except (RuntimeError, NotImplementedError):
        return None
