"""Engine memory that torch tensors view, and calls that update it in place.

A program that updates state (:class:`~.engine.CompileOptions`, ``updates``) reuses an argument's memory
only if XLA owns that memory. So the memory of such state belongs to XLA, and torch tensors view it by its
address. Each execution deletes the arrays that it took, and returns new ones at the same addresses. So a
tensor over such memory shows every update, and nothing is copied.

This works only on devices whose memory PyTorch can use too: those that share the host's memory, and GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch

from .. import dtypes
from ..errors import EngineError
from . import _jaxlib, _jaxlib_runs, streams
from .buffers import ALIGNMENT, BufferSpec, Device, check_count
from .gpu_calls import GpuArgument
from .torch_bridge import numpy_view
from .torch_calls import Argument

_pointer = _jaxlib.pointer


class Resident:
    """Holds the array that is now at an address. The tensor over that memory keeps this object alive."""

    __slots__ = ("__array_interface__", "__cuda_array_interface__", "__weakref__", "address", "array")

    def __init__(self, array: Any, size: int, *, on_gpu: bool) -> None:
        self.array = array
        self.address = _pointer(array) if size else 0
        shown = {"shape": (size,), "typestr": "|u1", "data": (self.address, False), "version": 3}
        if on_gpu:
            self.__cuda_array_interface__ = shown
        else:
            self.__array_interface__ = shown


def reside(device: Device, tensor: torch.Tensor) -> tuple[Resident, torch.Tensor]:
    """Copy a contiguous ``tensor`` to engine memory; return the resident and a tensor over that memory."""
    dtype = dtypes.from_torch(tensor.dtype)
    array = _jaxlib.put(_unaligned(numpy_view(tensor.detach().cpu(), dtype)), device.handle)
    return shown(device, array, BufferSpec(tuple(tensor.shape), dtype))


def shown(device: Device, array: Any, spec: BufferSpec) -> tuple[Resident, torch.Tensor]:
    """Return a resident for an array that XLA owns, and a tensor over its memory."""
    size = math.prod(spec.shape) * spec.dtype.itemsize
    gpu = streams.torch_device(device)
    resident = Resident(array, size, on_gpu=gpu is not None)
    if not size:
        return resident, torch.empty(spec.shape, dtype=spec.dtype.torch, device=gpu)
    memory = (
        torch.from_numpy(numpy.asarray(resident)) if gpu is None else torch.as_tensor(resident, device=gpu)
    )
    return resident, memory.view(spec.dtype.torch).view(spec.shape)


def _unaligned(values: numpy.ndarray[Any, Any]) -> numpy.ndarray[Any, Any]:
    """Copy ``values`` to an address that PJRT cannot alias, so that XLA makes an array of its own."""
    room = numpy.empty(values.nbytes + ALIGNMENT, numpy.uint8)
    half = ALIGNMENT // 2  # enough for every dtype
    first = (half - room.ctypes.data) % ALIGNMENT
    copy = room[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


class ResidentCall:
    """A program whose first arguments are residents, and the others torch tensors.

    ``updates`` has pairs of a resident's position and the result that takes its place. The other results
    are returned as arrays, in order; :func:`~.torch_bridge.owned` and :func:`shown` make tensors of them.
    If a signal handler raises (:class:`KeyboardInterrupt`), residents have all of their updates or none.
    """

    def __init__(
        self,
        run: Callable[[list[Any], _jaxlib_runs.Execution], list[Any]],
        inputs: Sequence[BufferSpec],
        outputs: Sequence[BufferSpec],
        device: Device,
        residents: int,
        updates: Sequence[tuple[int, int]],
    ) -> None:
        self._run = run
        self._residents = residents
        self._updates = list(updates)
        self._gpu = device if streams.torch_device(device) is not None else None
        kind = Argument if self._gpu is None else GpuArgument
        self._arguments = [
            kind(spec, position, device, consumed=False)
            for position, spec in enumerate(inputs)
            if position >= residents
        ]
        updated = {result for _, result in updates}
        self._fresh = [position for position in range(len(outputs)) if position not in updated]
        self.outputs = tuple(outputs)

    def __call__(self, residents: Sequence[Resident], tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Run once; return the arrays of the results that do not update a resident."""
        check_count(len(residents) + len(tensors), self._residents + len(self._arguments))
        if self._gpu is not None:
            self._follow_torch(self._gpu, tensors)
        arrays = [resident.array for resident in residents]
        for argument, tensor in zip(self._arguments, tensors, strict=True):
            plain = argument.is_plain(tensor)
            arrays.append(argument.alias(tensor) if plain else argument.convert(tensor).array)
        execution = _jaxlib_runs.Execution()
        try:
            moved = self._update(residents, self._run(arrays, execution))
        except BaseException:
            if execution.is_done:  # a signal handler has raised
                self._update(residents, execution.results)
            raise
        if moved:
            raise EngineError(
                "the engine gave updated state other memory, so tensors over it are not valid any more",
                hint="report this with the version of jaxlib; load a checkpoint before you go on",
            )
        return [execution.results[position] for position in self._fresh]

    def _update(self, residents: Sequence[Resident], results: Sequence[Any]) -> bool:
        """Give residents their new arrays, which keep their memory alive; return whether any has moved."""
        if self._gpu is not None and results:
            streams.torch_waits(self._gpu, results[self._fresh[0] if self._fresh else 0])
        moved = False
        for position, result in self._updates:
            resident, array = residents[position], results[result]
            moved |= bool(resident.address) and _pointer(array) != resident.address
            resident.array = array
        return moved

    @staticmethod
    def _follow_torch(gpu: Device, tensors: Sequence[torch.Tensor]) -> None:
        """Let the program start only after PyTorch's queued work, because the program may write residents."""
        if any(streams.is_here(gpu, tensor) for tensor in tensors):
            streams.engine_waits(gpu)
        else:  # without an argument on the GPU, only the host can wait
            streams.host_waits(gpu)
