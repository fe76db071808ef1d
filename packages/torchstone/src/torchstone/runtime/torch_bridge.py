"""Converts single torch tensors to buffers and back; :mod:`.torch_calls` has calls with lists of tensors.

This module is imported only when a torch tensor is passed, so that the rest of the runtime works in a
process without torch. The rules on copies are those of :mod:`.imports`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy
import torch

from .. import dtypes, spans
from ..dtypes import DType
from ..errors import UnsupportedDtype, UnsupportedLayout, described
from ..torch_internals import tensors
from ..torch_internals.fake import FakeTensor
from ..torch_internals.tensors import is_traceable_wrapper_subclass, is_zero_tensor
from . import _jaxlib, streams
from .buffers import ALIGNMENT, Buffer, Device, copy_to_device
from .counters import counters

# These are the C functions: the Python wrappers around them cost as much as the import of a tensor.
to_dlpack: Callable[[torch.Tensor], Any] = tensors.to_dlpack.get()
from_dlpack: Callable[[Any], torch.Tensor] = tensors.from_dlpack.get()

spans.follow_torch()

PLAIN_TYPES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
"""Types of tensors whose memory can be used directly; subclasses take a slower path with more checks."""


class Placement(NamedTuple):
    """How tensors on a device of PyTorch get into programs and out of them.

    ``read`` returns a CPU tensor with the values of a tensor on the device. The result must only be read,
    because it may be the same memory. ``take`` returns a tensor on the device with the values of a contiguous
    CPU tensor, which the caller gives away.
    """

    read: Callable[[torch.Tensor], torch.Tensor]
    take: Callable[[torch.Tensor], torch.Tensor]


placements: dict[str, Placement] = {}
"""The placements, by device type, of devices that have a faster way than ``tensor.to``."""


def placement_of(device: torch.device) -> Placement:
    """Return how tensors on ``device`` get into programs and out of them."""
    known = placements.get(device.type)
    return known or Placement(lambda tensor: tensor.detach().cpu(), lambda host: host.to(device))


def import_tensor(device: Device, tensor: torch.Tensor) -> Buffer:
    """Return a buffer with ``tensor``'s values: an alias if the rules allow it, else a counted copy."""
    dtype = _dtype_of(tensor)
    try:
        plain = _plain(device, tensor)
        if streams.is_here(device, plain):
            dense = plain.contiguous()
            streams.engine_waits(device)
            array = streams.taken(device, dense)
            return Buffer(array, tuple(plain.shape), dtype, device, aliased=True)
        if not device.shares_host_memory:
            if streams.torch_device(device) is not None:
                streams.host_waits(device)
            return copy_to_device(device, numpy_view(plain, dtype), "host to device")
        if not plain.is_contiguous():
            counters.copied("in", "strided", plain.nbytes)
            plain = plain.contiguous()
        if plain.numel() and not plain.data_ptr():
            raise RuntimeError("its memory was freed")
        aligned = is_aligned(plain)
        if not aligned:
            counters.copied("in", "unaligned", plain.nbytes)
        array = _jaxlib.import_dlpack(to_dlpack(plain), device.handle, None)
        aliased = aligned and plain.data_ptr() == tensor.data_ptr()
    except RuntimeError as error:
        raise UnsupportedLayout(
            f"{described(tensor)} on {tensor.device} has no memory that can be read: {error}",
            hint="pass plain tensors with values, outside of torch.func transforms",
        ) from error
    return Buffer(array, tuple(plain.shape), dtype, device, aliased)


def to_torch(buffer: Buffer, *, on_device: bool = False) -> torch.Tensor:
    """Return ``buffer`` as a torch CPU tensor: the same memory if it is on the CPU, else a counted copy.

    ``on_device`` leaves it on its device instead, without a copy, if that is a GPU that PyTorch can use too.
    """
    if buffer.dtype in dtypes.SUB_BYTE:
        raise UnsupportedDtype(
            f"torch cannot hold the values of a {buffer.dtype} buffer",
            hint="convert it to int8 in the program",
        )
    if buffer.device.shares_host_memory:
        return from_dlpack(buffer.__dlpack__())
    place = streams.torch_device(buffer.device) if on_device else None
    if place is not None and buffer.array.size:
        return streams.shown(buffer.device, buffer.array)
    values = numpy.array(buffer.to_numpy(), copy=True)
    flat = torch.from_numpy(values.reshape(-1).view(numpy.uint8)).view(buffer.dtype.torch)
    return flat.reshape(buffer.shape).to(place or "cpu")


def owned(device: Device, array: Any) -> torch.Tensor:
    """Return a torch tensor that owns an array in memory that PyTorch can use: the host's or a GPU's."""
    return (
        from_dlpack(_jaxlib.export_dlpack(array))
        if device.shares_host_memory
        else streams.shown(device, array)
    )


def _dtype_of(tensor: torch.Tensor) -> DType:
    """Return the dtype of a tensor with plain memory; raise for sparse, wrapped and fake tensors."""
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_mkldnn:
        raise UnsupportedLayout(
            f"a tensor of layout {tensor.layout} is not a plain strided tensor",
            hint="call .to_dense() on it first",
        )
    if type(tensor) not in PLAIN_TYPES and (
        isinstance(tensor, FakeTensor) or is_traceable_wrapper_subclass(tensor)
    ):
        raise UnsupportedLayout(
            f"{described(tensor)} is not a plain strided tensor", hint="pass the tensors inside it"
        )
    dtype = dtypes.from_torch(tensor.dtype)
    if dtype in dtypes.SUB_BYTE:
        raise UnsupportedDtype(f"torch cannot export {dtype} tensors", hint="pass a NumPy array of ml_dtypes")
    return dtype


def is_aligned(tensor: torch.Tensor) -> bool:
    return tensor.data_ptr() % ALIGNMENT == 0


def _plain(device: Device, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` detached, on the CPU or ``device``, with memory and without lazy conj or neg bits."""
    plain = tensor.as_subclass(torch.Tensor).detach()
    if is_zero_tensor(plain):
        counters.copied("in", "autograd's zeros", plain.nbytes)
        plain = plain.clone()
    if plain.is_conj() or plain.is_neg():
        counters.copied("in", "lazy conj or neg bit", plain.nbytes)
        plain = plain.resolve_conj().resolve_neg()
    if not plain.is_cpu and not streams.is_here(device, plain):
        counters.copied("in", "tensor on another device", plain.nbytes)
        plain = plain.cpu()
    return plain


def numpy_view(tensor: torch.Tensor, dtype: DType) -> numpy.ndarray[Any, Any]:
    """Return a CPU tensor's memory as a NumPy array, also for dtypes that NumPy itself lacks.

    If the tensor is not contiguous, the array is a copy.
    """
    flat = tensor.contiguous().reshape(-1)
    if not flat.numel():
        return numpy.empty(tuple(tensor.shape), dtype.numpy)
    return flat.view(torch.uint8).numpy().view(dtype.numpy).reshape(tuple(tensor.shape))
