"""Calls programs with lists of torch tensors, with as little work per call as is safe.

The rules on copies are those of :mod:`.imports`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import torch

from .. import dtypes
from ..torch_internals import dynamo
from ..torch_internals.tensors import is_zero_tensor, version_of
from . import _jaxlib
from .buffers import ALIGNMENT, Buffer, BufferSpec, Device, check_buffer, check_count
from .imports import import_array
from .torch_bridge import PLAIN_TYPES, from_dlpack, is_aligned, to_dlpack, to_torch

_import_dlpack = _jaxlib.import_dlpack
_export_dlpack = _jaxlib.export_dlpack
_address: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr

_VIEWS = 64
"""How many addresses one argument remembers; a loop over preallocated inputs has few."""


class TorchCall:
    """A program that is called with a list of torch tensors and returns torch CPU tensors.

    ``static`` has the positions of arguments (parameters, buffers) whose imported
    form is kept from call to call. On a device that shares the host's memory,
    that form is a view of the tensor's address, which does not keep the memory alive
    and shows every in-place write; a tensor that cannot be viewed is copied in each
    call. On other devices it is a copy, which is made again when the tensor's address
    or version counter changes (writes through ``.data`` do not change the counter).
    The tensor's memory is kept alive as long as the copy is current.

    ``guarded``: the caller knows that static arguments have the same type, dtype, shape,
    strides and device as in the last call, so that only their addresses are compared.
    ``donated`` has the positions of arguments that the execution consumes; nothing of them
    is kept. ``left`` has the positions of results that a :class:`~.gpu_calls.GpuCall`
    leaves on its GPU.

    Safe to call from several threads.
    """

    def __init__(
        self,
        run: Callable[[list[Any]], list[Any]],
        inputs: Sequence[BufferSpec],
        outputs: Sequence[BufferSpec],
        device: Device,
        static: Iterable[int] = (),
        donated: Iterable[int] = (),
        *,
        guarded: bool = False,
        left: Collection[int] = (),
    ) -> None:
        self._run = run
        self._left = frozenset(left)
        self._device = device
        consumed = frozenset(donated)
        self._arguments = [
            self._argument(spec, position, consumed=position in consumed)
            for position, spec in enumerate(inputs)
        ]
        self._outputs = tuple(outputs)
        self._static = sorted(set(static) - consumed)
        self._pick_static = _picker(self._static)
        self._guarded = guarded
        self._shares_outputs = device.shares_host_memory and not any(
            spec.dtype in dtypes.SUB_BYTE for spec in outputs
        )
        # This is only replaced as a whole and never changed, so it is safe between threads.
        self._known: _Known | None = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run once. The inputs are not read after the call has returned; the outputs belong to the caller."""
        check_count(len(tensors), len(self._arguments))
        known = self._known
        if (
            known is not None
            and known.guards.check(*known.pick_unguarded(tensors))
            and self._identities(tensors) == known.identities
        ):
            arrays = known.arrays.copy()
            for position in known.fresh:
                arrays[position] = self._arguments[position].alias(tensors[position])
        else:
            arrays = self._learn(tensors)
        results = self._run(arrays)
        if self._shares_outputs:
            return [from_dlpack(_export_dlpack(array)) for array in results]
        return self._exported(results)

    def _argument(self, spec: BufferSpec, position: int, *, consumed: bool) -> Argument:
        return Argument(spec, position, self._device, consumed=consumed)

    def _exported(self, results: Sequence[Any]) -> list[torch.Tensor]:
        return [
            to_torch(Buffer(array, spec.shape, spec.dtype, self._device, aliased=False))
            for array, spec in zip(results, self._outputs, strict=True)
        ]

    def _identities(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return values that change when the kept form of a static argument is not current any more."""
        static = self._pick_static(tensors)
        if self._device.shares_host_memory:
            return list(map(_address, static))
        return [(tensor.data_ptr(), version_of(tensor)) for tensor in static]

    def _learn(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Check and import each tensor separately, and remember what the next call may skip."""
        pairs = list(zip(self._arguments, tensors, strict=True))
        plain = [argument.is_plain(tensor) for argument, tensor in pairs]
        arrays = [
            argument.alias(tensor) if is_plain else argument.convert(tensor).array
            for (argument, tensor), is_plain in zip(pairs, plain, strict=True)
        ]
        if all(plain):
            kept, storages = self._kept(tensors, arrays)
            fresh = [i for i in range(len(arrays)) if i not in kept]
            pick = _picker(fresh if self._guarded else range(len(arrays)))
            self._known = _Known(
                guards=dynamo.TensorGuards(
                    *pick(tensors), dynamic_dims_sizes=None, dynamic_dims_strides=None
                ),
                pick_unguarded=pick,
                identities=self._identities(tensors),
                arrays=[kept.get(i) for i in range(len(arrays))],
                fresh=fresh,
                storages=storages,
            )
        return arrays

    def _kept(
        self, tensors: Sequence[torch.Tensor], arrays: Sequence[Any]
    ) -> tuple[dict[int, Any], list[Any]]:
        """Return the kept forms of the static arguments, by position, and the storages that these need."""
        # Views never become stale. Copies on the host would, and nothing would notice.
        if self._device.shares_host_memory:
            viewable = [i for i in self._static if is_aligned(tensors[i])]
            return {i: self._arguments[i].view(tensors[i].data_ptr()) for i in viewable}, []
        return {i: arrays[i] for i in self._static}, [tensors[i].untyped_storage() for i in self._static]


@dataclass(frozen=True, slots=True)
class _Known:
    """What a call with full checks has found out, so that later calls can skip it.

    ``guards`` compares type, dtype, shape, strides, device and lazy bits of the
    tensors that ``pick_unguarded`` picks, in one C++ call. It also refuses a tensor
    that is passed twice, which then gets the full checks. ``arrays`` has the kept imports, and
    None at the positions in ``fresh``, which are imported in each call. ``storages`` keeps
    the memory behind kept copies alive, so that an equal address means the same memory and
    not memory that was freed and allocated again; views do not need that.
    """

    guards: Any
    pick_unguarded: Callable[[Sequence[Any]], Sequence[Any]]
    identities: list[Any]
    arrays: list[Any]
    fresh: list[int]
    storages: list[Any]


class Argument:
    """One argument of a :class:`TorchCall`, which checks and imports a tensor.

    ``consumed``: the execution takes over the imported form (donation), so no form is used twice.
    """

    def __init__(self, spec: BufferSpec, position: int, device: Device, *, consumed: bool) -> None:
        self.spec = spec
        self.position = position
        self.device = device
        self.dtype = None if spec.dtype in dtypes.SUB_BYTE else spec.dtype.torch
        self.consumed = consumed
        # Maps an address to a view of it, or to None if the address was passed only once.
        self._views: dict[int, Any] = {}

    def is_plain(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory can be handed over as it is, if it is aligned."""
        return (
            type(tensor) in PLAIN_TYPES
            and tensor.dtype is self.dtype
            and not tensor.is_nested
            and tensor.shape == self.spec.shape
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and self._has_memory(tensor)
            and not tensor.is_neg()
            and not tensor.is_conj()
            and not is_zero_tensor(tensor)
        )

    def _has_memory(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is on a device that :meth:`alias` can import from."""
        return tensor.is_cpu

    def alias(self, tensor: torch.Tensor) -> Any:
        """Import a plain tensor, without a copy if possible."""
        address = tensor.data_ptr()
        view = self._views.get(address)
        if view is not None:
            return view
        if not address or address % ALIGNMENT or not self.device.shares_host_memory:
            return self.convert(tensor).array
        if address in self._views:
            view = self._views[address] = self.view(address)
            return view
        if len(self._views) >= _VIEWS:
            self._views.clear()
        if not self.consumed:
            self._views[address] = None
        return _import_dlpack(to_dlpack(tensor), self.device.handle, None)

    def view(self, address: int) -> Any:
        """Return an array for this argument over the host memory at ``address``, without keeping that alive.

        Making a view costs more than an import, but reusing it costs nothing. A view may outlive
        the memory, as long as programs use it only while a tensor is at the address.
        """
        dtype = self.spec.dtype.torch
        if not address:
            flat = torch.empty(0, dtype=dtype)
        else:
            count = math.prod(self.spec.shape) * self.spec.dtype.itemsize
            memory = (ctypes.c_byte * count).from_address(address)
            flat = torch.frombuffer(memory, dtype=torch.uint8).view(dtype)
        return _import_dlpack(to_dlpack(flat.view(self.spec.shape)), self.device.handle, None)

    def convert(self, tensor: Any) -> Buffer:
        """Import anything that can be imported, or raise an error that says what is wrong with it."""
        buffer = import_array(self.device, tensor)
        check_buffer(buffer, self.spec, self.position)
        return buffer


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that picks the items at ``positions`` of a sequence, in C if possible."""
    if positions and list(positions) == list(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda items: [items[position] for position in positions]
