"""Programs that run on the devices of a mesh: arrays in parts, and the call layer for them.

The engine compiles them (:mod:`.pjrt`); what a mesh is, and which part of an array a device has, is in
:mod:`torchstone.sharding`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .. import spans
from ..dtypes import DType
from ..errors import EngineError
from ..sharding import Mesh, Part, Spec
from . import _jaxlib, forks
from .buffers import Buffer, BufferSpec, Device, check_buffer, check_count
from .counters import counters
from .executable import Compiled
from .imports import import_array

_one_at_a_time = threading.Lock()
"""Parts of a program wait for each other, and two programs could hold the threads that the other needs."""


@dataclass(frozen=True)
class MeshDevices:
    """The devices of a mesh, in its order. ``staging`` is what arrays of the host are imported for."""

    mesh: Mesh
    handles: tuple[Any, ...]
    staging: Device


class ShardedBuffer(Buffer):
    """An array in parts on the devices of a mesh.

    ``array`` is the list of the devices' own arrays, and ``slices`` says where each belongs; parts of
    several devices may be copies of each other.
    """

    __slots__ = ("slices",)

    def __init__(
        self,
        parts: list[Any],
        shape: tuple[int, ...],
        dtype: DType,
        devices: MeshDevices,
        slices: Sequence[Part],
    ) -> None:
        platform = devices.staging.platform
        super().__init__(
            parts, shape, dtype, Device(f"{platform} {devices.mesh}", platform, False, None), False
        )
        self.slices = list(slices)

    def is_deleted(self) -> bool:
        """Whether the memory of one of the parts was given away."""
        return any(part.is_deleted() for part in self.array)

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """The whole array in memory of its own: a counted copy."""
        self._check_alive()
        whole = numpy.empty(self.shape, self.dtype.numpy)
        counters.copied("out", "parts of a mesh", whole.nbytes)
        seen: list[Part] = []
        for part, where in zip(self.array, self.slices, strict=True):
            if where not in seen:
                seen.append(where)
                # What does not split evenly has padding behind its last part.
                inside = tuple(slice(0, one.stop - one.start) for one in where)
                whole[where] = _jaxlib.to_numpy(part)[inside]
        return whole


class ShardedProgram:
    """A program compiled for a mesh: the :class:`~.engine.Executable` of several devices.

    ``shardings`` are the specs of its arguments.
    """

    def __init__(
        self,
        handle: Any,
        inputs: Sequence[BufferSpec],
        outputs: Sequence[BufferSpec],
        devices: MeshDevices,
        shardings: Sequence[Spec],
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.devices = devices
        self._shardings = tuple(shardings)
        self._parts = [
            list(devices.mesh.slices(spec, one.shape))
            for spec, one in zip(self._shardings, self.inputs, strict=True)
        ]
        self._handle = handle
        self._execute = _jaxlib.partitioned_executor(handle)
        self._result_parts = _jaxlib.result_parts(handle, [one.shape for one in self.outputs])

    def __call__(self, *arguments: Any) -> list[Buffer]:
        """Run on what :meth:`place` takes; the results are in parts, too.

        Raises InputMismatch naming the argument, and EngineError where the execution fails.
        """
        check_count(len(arguments), len(self.inputs))
        if forks.threads_lost:
            forks.refuse_lost_threads()
        placed = [self.place(argument, position) for position, argument in enumerate(arguments)]
        mesh, handles = self.devices.mesh, self.devices.handles
        arrays = [
            _jaxlib.join_parts(buffer.array, buffer.shape, mesh.axes, spec, handles)
            for buffer, spec in zip(placed, self._shardings, strict=True)
        ]
        try:
            with _one_at_a_time, spans.span("run", self.compiled.name, self):
                results = self._execute(arrays)
                _jaxlib.wait(results)
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(f"the program failed on the mesh {mesh}: {error}") from error
        return [
            ShardedBuffer(parts, spec.shape, spec.dtype, self.devices, slices)
            for parts, spec, slices in zip(results, self.outputs, self._result_parts, strict=True)
        ]

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The program of one device, as the engine compiled it."""
        name, text = _jaxlib.optimized_module(self._handle)
        return Compiled(name, text, _jaxlib.memory_sizes(self._handle))

    def place(self, array: Any, position: int) -> ShardedBuffer:
        """``array`` in the parts that the argument at ``position`` has; one that has them already as it is.

        It is a Buffer, a NumPy array, a torch tensor or a DLPack object. Raises
        :class:`~torchstone.errors.InputMismatch` where it is not what the program takes.
        """
        slices = self._parts[position]
        if isinstance(array, ShardedBuffer) and array.slices == slices:
            check_buffer(array, self.inputs[position], position)
            return array
        if isinstance(array, ShardedBuffer):
            array = array.to_numpy()
        buffer = import_array(self.devices.staging, array)
        check_buffer(buffer, self.inputs[position], position)
        whole = buffer.to_numpy()
        parts = []
        for where, handle in zip(slices, self.devices.handles, strict=True):
            part = numpy.array(
                whole[where], order="C", copy=True
            )  # the transfer may share its source's memory
            counters.copied("in", "parts of a mesh", part.nbytes)
            parts.append(_jaxlib.put(part, handle))
        return ShardedBuffer(parts, buffer.shape, buffer.dtype, self.devices, slices)
