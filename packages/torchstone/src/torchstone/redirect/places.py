"""Which tensors the redirected code put on which CUDA device, where all of them really lie on the CPU.

A *place* is the index of a CUDA device, :data:`HOST` for the CPU, or None for a tensor that no redirected
call has made (the result of a scripted function, say). It is kept on the storage, so that views, detached
tensors and parameters share it, and it dies with the memory. :func:`device_of` writes a place as a device
that PyTorch's own code can carry around: ``cpu`` with an index that no CPU has.
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
    """The device type of a mesh for CUDA: the CPU to PyTorch's code, CUDA where calls ask for it."""


ACCOUNTS = tuple(Account() for _ in range(LIMIT))
"""The memory of each CUDA device."""


class _Mark:
    """The place of one storage on a CUDA device, which counts its bytes for as long as it lives."""

    __slots__ = ("bytes", "place")

    def __init__(self, place: int, size: int) -> None:
        self.place, self.bytes = place, size
        ACCOUNTS[place].add(size)

    def __del__(self) -> None:
        ACCOUNTS[self.place].remove(self.bytes)


class _Fixed:
    """A mark that counts nothing: of what is known to be the CPU's, or of what has no place."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.place = place


_ON_HOST, _NOWHERE = _Fixed(HOST), _Fixed(None)


def device_of(place: int) -> torch.device:
    """The device that stands for a place in calls of PyTorch; it is of type ``cpu``."""
    return _CPU if place == HOST else _DEVICES[place]


def place_of_device(device: torch.device) -> Place:
    """The inverse of :func:`device_of`; None for a device that is not the CPU."""
    if device.type != "cpu":
        return None
    index = device.index
    return HOST if index is None or index < _FIRST else index - _FIRST


def parsed(asked: Any) -> torch.device:
    """``torch.device(asked)`` itself, whatever modes this thread is in."""
    if isinstance(asked, torch.device):
        return asked
    return _parsed(asked) if torch.compiler.is_dynamo_compiling() else _parsed_once(asked)


def _parsed(asked: str) -> torch.device:
    with dispatch.without_function_modes():
        return torch.device(asked)


_parsed_once = functools.cache(_parsed)  # Dynamo looks through a cache, and warns


def cuda(index: int) -> torch.device:
    """The device that redirected code is shown for the CUDA device ``index``."""
    return _CUDA[index]


def place_of(tensor: torch.Tensor) -> Place:
    """Where redirected code put a tensor."""
    if type(tensor) not in _PLAIN:
        for part in _parts(tensor):
            return place_of(part)
    return getattr(_memory_of(tensor), _ATTRIBUTE, _NOWHERE).place


def place_of_storage(storage: torch.UntypedStorage) -> Place:
    """Where redirected code put a storage."""
    return getattr(storage, _ATTRIBUTE, _NOWHERE).place


def put(tensor: torch.Tensor, place: int) -> None:
    """Notes the place of a tensor whose memory has none yet; memory never changes its place."""
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
    """:func:`put` for memory of the CPU."""
    if not hasattr(storage, _ATTRIBUTE):
        setattr(storage, _ATTRIBUTE, _ON_HOST if place == HOST else _Mark(place, storage.nbytes()))


def _parts(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensors that a wrapper such as ``DTensor`` consists of; none of another tensor."""
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
    """The memory below a wrapper of ``torch.func``, or of a sparse tensor's values; None if there is none."""
    tensor = redirection.unwrapped(tensor)
    try:
        if tensor.layout is torch.strided:
            return _storage_of(tensor)
        values = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
        return _storage_of(values)
    except (RuntimeError, NotImplementedError):
        return None
