"""torch tensors in and out of an engine, with as little work per call as is safe.

Imported only when a torch tensor shows up, so that the rest of the runtime
works in a process without torch. The rules on copies are those of
:mod:`.buffers`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy
import torch

from .. import dtypes, spans
from ..dtypes import DType
from ..errors import UnsupportedDtype, UnsupportedLayout
from ..torch_internals import dynamo, tensors
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import is_traceable_wrapper_subclass, is_zero_tensor, version_of
from . import _jaxlib
from .buffers import (
    ALIGNMENT,
    Buffer,
    BufferSpec,
    Device,
    check_buffer,
    check_count,
    copy_to_device,
    import_array,
)
from .counters import counters

# The C functions: the Python wrappers around them cost as much as an import.
_to_dlpack: Callable[[torch.Tensor], Any] = tensors.to_dlpack.get()
_from_dlpack: Callable[[Any], torch.Tensor] = tensors.from_dlpack.get()
_import_dlpack = _jaxlib.import_dlpack
_export_dlpack = _jaxlib.export_dlpack
_address: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr

spans.follow_torch()

_VIEWS = 64
"""Addresses that one argument remembers; a loop over preallocated inputs has few."""

_TENSOR_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""Types whose memory is what it seems; subclasses go through the slower, careful road."""


class Placement(NamedTuple):
    """How tensors of a device that PyTorch runs on get into programs and out of them.

    ``read``: a tensor's values in one of the CPU, for reading (it may be the same memory). ``take``: a
    tensor of that device with the values of a contiguous one of the CPU, which is given away.
    """

    read: Callable[[torch.Tensor], torch.Tensor]
    take: Callable[[torch.Tensor], torch.Tensor]


placements: dict[str, Placement] = {}
"""By device type, of devices that know a shorter way than ``tensor.to``."""


def placement_of(device: torch.device) -> Placement:
    """How tensors of ``device`` get into programs and out of them."""
    known = placements.get(device.type)
    return known or Placement(lambda tensor: tensor.detach().cpu(), lambda host: host.to(device))


def import_tensor(device: Device, tensor: torch.Tensor) -> Buffer:
    """A buffer with ``tensor``'s values: an alias where the rules allow, else a counted copy."""
    dtype = _dtype_of(tensor)
    try:
        plain = _plain(tensor)
        if not device.shares_host_memory:
            return copy_to_device(device, numpy_view(plain, dtype), "host to device")
        if not plain.is_contiguous():
            counters.copied("in", "strided", plain.nbytes)
            plain = plain.contiguous()
        if plain.numel() and not plain.data_ptr():
            raise RuntimeError("its memory was freed")
        aligned = _is_aligned(plain)
        if not aligned:
            counters.copied("in", "unaligned", plain.nbytes)
        array = _import_dlpack(_to_dlpack(plain), device.handle, None)
        aliased = aligned and plain.data_ptr() == tensor.data_ptr()
    except RuntimeError as error:
        raise UnsupportedLayout(
            f"a {type(tensor).__name__} on {tensor.device} has no memory that can be read: {error}",
            hint="pass plain tensors with values, outside of torch.func transforms",
        ) from error
    return Buffer(array, tuple(plain.shape), dtype, device, aliased)


def to_torch(buffer: Buffer) -> torch.Tensor:
    """``buffer`` as a torch CPU tensor: the same memory on the CPU, a counted copy elsewhere."""
    if buffer.dtype in dtypes.SUB_BYTE:
        raise UnsupportedDtype(
            f"torch cannot hold the values of a {buffer.dtype} buffer",
            hint="convert it to int8 in the program",
        )
    if buffer.device.shares_host_memory:
        return _from_dlpack(buffer.__dlpack__())
    values = numpy.array(buffer.to_numpy(), copy=True)
    return (
        torch.from_numpy(values.reshape(-1).view(numpy.uint8)).view(buffer.dtype.torch).reshape(buffer.shape)
    )


def owned(array: Any) -> torch.Tensor:
    """An array on a device that shares the host's memory, as a torch tensor that owns it."""
    return _from_dlpack(_export_dlpack(array))


class TorchCall:
    """A program called with a list of torch tensors, giving torch CPU tensors.

    ``static`` are positions of arguments (parameters, buffers) whose imported
    form is kept from call to call. On a device that shares the host's memory
    that form is a view of the tensor's address, which keeps nothing alive and
    shows every in-place write; what cannot be viewed is copied on each call.
    Elsewhere it is a copy, made anew when the tensor's address or version
    counter changes (writes through ``.data`` do not change the counter); the
    tensor's memory then lives as long as the copy is current. ``guarded``: the
    caller knows that static arguments still have the type, dtype, shape, strides
    and device of the last call's, so that only their addresses are compared.
    ``donated`` are positions that the execution consumes: nothing of theirs is kept.

    Safe from several threads.
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
    ) -> None:
        self._run = run
        consumed = frozenset(donated)
        self._arguments = [
            Argument(spec, position, device, consumed=position in consumed)
            for position, spec in enumerate(inputs)
        ]
        self._outputs = tuple(outputs)
        self._device = device
        self._static = sorted(set(static) - consumed)
        self._pick_static = _picker(self._static)
        self._guarded = guarded
        self._shares_outputs = device.shares_host_memory and not any(
            spec.dtype in dtypes.SUB_BYTE for spec in outputs
        )
        # Replaced as a whole, never changed: safe between threads.
        self._known: _Known | None = None

    def __call__(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run once. Inputs are only read until the call returns; outputs are the caller's own."""
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
            return [_from_dlpack(_export_dlpack(array)) for array in results]
        return [
            to_torch(Buffer(array, spec.shape, spec.dtype, self._device, aliased=False))
            for array, spec in zip(results, self._outputs, strict=True)
        ]

    def _identities(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """What tells whether the kept form of each static argument is still current."""
        static = self._pick_static(tensors)
        if self._device.shares_host_memory:
            return list(map(_address, static))
        return [(tensor.data_ptr(), version_of(tensor)) for tensor in static]

    def _learn(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Check and import each tensor by itself; remember what the next call may skip."""
        pairs = list(zip(self._arguments, tensors, strict=True))
        plain = [argument.is_plain(tensor) for argument, tensor in pairs]
        arrays = [
            argument.alias(tensor) if is_plain else argument.convert(tensor).array
            for (argument, tensor), is_plain in zip(pairs, plain, strict=True)
        ]
        if all(plain):
            # Views never go stale; copies of host memory on the host would, unnoticed.
            if self._device.shares_host_memory:
                viewable = [i for i in self._static if _is_aligned(tensors[i])]
                kept = {i: self._arguments[i].view(tensors[i].data_ptr()) for i in viewable}
                storages = []
            else:
                kept = {i: arrays[i] for i in self._static}
                storages = [tensors[i].untyped_storage() for i in kept]
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


@dataclass(frozen=True, slots=True)
class _Known:
    """What one careful call has found out.

    ``guards`` compares type, dtype, shape, strides, device and lazy bits of the
    tensors that ``pick_unguarded`` picks in one C++ call (which also refuses one
    tensor passed twice: that goes the careful road). ``arrays`` are the kept imports, None at the
    positions in ``fresh``, which are imported on each call. ``storages`` keeps
    the memory behind kept copies alive, so that an equal address means the
    same memory, never a recycled one; views need no such care.
    """

    guards: Any
    pick_unguarded: Callable[[Sequence[Any]], Sequence[Any]]
    identities: list[Any]
    arrays: list[Any]
    fresh: list[int]
    storages: list[Any]


class Argument:
    """One input of a :class:`TorchCall`: checks a tensor and imports it.

    ``consumed``: the execution takes the imported form over (donation), so none is used twice.
    """

    def __init__(self, spec: BufferSpec, position: int, device: Device, *, consumed: bool) -> None:
        self.spec = spec
        self.position = position
        self.device = device
        self.dtype = None if spec.dtype in dtypes.SUB_BYTE else spec.dtype.torch
        self.consumed = consumed
        # Address → view of it, None where the address was met only once.
        self._views: dict[int, Any] = {}

    def is_plain(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor's memory can be handed over as it is, alignment apart."""
        return (
            type(tensor) in _TENSOR_TYPES
            and tensor.dtype is self.dtype
            and not tensor.is_nested
            and tensor.shape == self.spec.shape
            and tensor.layout is torch.strided
            and tensor.is_contiguous()
            and tensor.is_cpu
            and not tensor.is_neg()
            and not tensor.is_conj()
            and not is_zero_tensor(tensor)
        )

    def alias(self, tensor: torch.Tensor) -> Any:
        """Import a plain tensor, without a copy where that is possible."""
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
        return _import_dlpack(_to_dlpack(tensor), self.device.handle, None)

    def view(self, address: int) -> Any:
        """The host memory at ``address`` as this argument, without keeping it alive.

        Making one costs more than an import and reusing it costs nothing. It may
        outlive the memory, as long as it is executed only while a tensor lies there.
        """
        dtype = self.spec.dtype.torch
        if not address:
            flat = torch.empty(0, dtype=dtype)
        else:
            count = math.prod(self.spec.shape) * self.spec.dtype.itemsize
            memory = (ctypes.c_byte * count).from_address(address)
            flat = torch.frombuffer(memory, dtype=torch.uint8).view(dtype)
        return _import_dlpack(_to_dlpack(flat.view(self.spec.shape)), self.device.handle, None)

    def convert(self, tensor: Any) -> Buffer:
        """Import anything that can be imported, or raise what is wrong with it."""
        buffer = import_array(self.device, tensor)
        check_buffer(buffer, self.spec, self.position)
        return buffer


def _dtype_of(tensor: torch.Tensor) -> DType:
    """The dtype of a tensor with memory of its own; sparse, wrapped and fake ones are refused."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_mkldnn:
        raise UnsupportedLayout(
            f"a tensor of layout {tensor.layout} is not a plain strided tensor",
            hint="call .to_dense() on it first",
        )
    if type(tensor) not in _TENSOR_TYPES and (
        isinstance(tensor, FakeTensor) or is_traceable_wrapper_subclass(tensor)
    ):
        raise UnsupportedLayout(
            f"a {type(tensor).__name__} is not a plain strided tensor", hint="pass the tensors inside it"
        )
    dtype = dtypes.from_torch(tensor.dtype)
    if dtype in dtypes.SUB_BYTE:
        raise UnsupportedDtype(f"torch cannot export {dtype} tensors", hint="pass a NumPy array of ml_dtypes")
    return dtype


def _picker(positions: Sequence[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that picks the items at ``positions`` of a sequence, in C where it can."""
    if positions and list(positions) == list(range(positions[0], positions[-1] + 1)):
        return itemgetter(slice(positions[0], positions[-1] + 1))
    if len(positions) > 1:
        return itemgetter(*positions)
    return lambda items: [items[position] for position in positions]


def _is_aligned(tensor: torch.Tensor) -> bool:
    return tensor.data_ptr() % ALIGNMENT == 0


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` on the CPU, detached, without lazy conjugate or negative bits, with memory."""
    plain = tensor.as_subclass(torch.Tensor).detach()
    if is_zero_tensor(plain):
        counters.copied("in", "autograd's zeros", plain.nbytes)
        plain = plain.clone()
    if plain.is_conj() or plain.is_neg():
        counters.copied("in", "lazy conj or neg bit", plain.nbytes)
        plain = plain.resolve_conj().resolve_neg()
    if not plain.is_cpu:
        counters.copied("in", "tensor on another device", plain.nbytes)
        plain = plain.cpu()
    return plain


def numpy_view(tensor: torch.Tensor, dtype: DType) -> numpy.ndarray[Any, Any]:
    """The memory of a CPU tensor as NumPy array, also for dtypes that NumPy lacks."""
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return numpy.empty(tuple(tensor.shape), dtype.numpy)
    return flat.view(torch.uint8).numpy().view(dtype.numpy).reshape(tuple(tensor.shape))
