"""Programs that run on the devices of a mesh: arrays in parts, and the call layer for them.

:mod:`.pjrt` compiles them. :mod:`torchstone.sharding` defines meshes, and which part of an array a device
has. The devices may belong to several processes. These all make the same calls, and each has the parts of
its own devices.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from .. import spans
from ..dtypes import DType
from ..errors import EngineError, InputMismatch
from ..sharding import LocalPart, Mesh, Part, Spec, block
from . import _jaxlib, _jaxlib_meshes, _jaxlib_runs, forks
from .buffers import Buffer, BufferSpec, Device, check_buffer, check_count
from .counters import counters
from .executable import Compiled
from .imports import import_array

one_at_a_time = threading.Lock()
"""Held while a program runs on several devices.

The parts of a program wait for each other. So of two programs at the same time, each could hold threads that
the other needs.
"""


@dataclass(frozen=True)
class MeshDevices:
    """The devices of a mesh, in the mesh's order.

    Arrays on the host are imported for the device ``staging`` first. ``compile`` compiles a module, given its
    arguments' specs, for the same devices.
    """

    mesh: Mesh
    handles: tuple[Any, ...]
    staging: Device
    compile: Callable[[bytes, Sequence[Spec]], ShardedProgram]

    @functools.cached_property
    def local(self) -> list[int]:
        """The positions of this process's devices."""
        return [place for place, handle in enumerate(self.handles) if _jaxlib_meshes.is_local(handle)]


class ShardedBuffer(Buffer):
    """An array in parts on the devices of a mesh.

    ``array`` is the list of the arrays on this process's devices, and ``slices`` has the place of each in the
    whole array. Parts on several devices may be copies of each other. ``spec`` says how the whole array is
    split; it is None if none of the program's arguments is split that way.
    """

    __slots__ = ("devices", "slices", "spec")

    def __init__(
        self,
        parts: list[Any],
        shape: tuple[int, ...],
        dtype: DType,
        devices: MeshDevices,
        slices: Sequence[Part],
        spec: Spec | None = None,
    ) -> None:
        platform = devices.staging.platform
        super().__init__(
            parts, shape, dtype, Device(f"{platform} {devices.mesh}", platform, False, None), False
        )
        self.devices = devices
        self.slices = list(slices)
        self.spec = spec

    def is_deleted(self) -> bool:
        """Whether the memory of any part was given away."""
        return any(part.is_deleted() for part in self.array)

    def to_numpy(self) -> numpy.ndarray[Any, Any]:
        """Return the whole array in memory of its own: a counted copy.

        If other processes have parts of the array, they send these. So all processes must call this.
        """
        self._check_alive()
        if self.spec is not None and not self._is_here():
            return self._gathered(self.spec).to_numpy()
        whole = numpy.empty(self.shape, self.dtype.numpy)
        counters.copied("out", "parts of a mesh", whole.nbytes)
        seen: list[Part] = []
        for part, where in zip(self.array, self.slices, strict=True):
            if where not in seen:
                seen.append(where)
                # If an axis does not split evenly, its last part has padding at the end.
                inside = tuple(slice(0, one.stop - one.start) for one in where)
                whole[where] = _jaxlib.to_numpy(part)[inside]
        return whole

    def _is_here(self) -> bool:
        """Whether the parts of this process make up the whole array."""
        return block(self.slices) == tuple(slice(0, size) for size in self.shape)

    def _gathered(self, spec: Spec) -> Buffer:
        """Return a copy of the whole array on each device."""
        module = gathering(self.devices.mesh, spec, BufferSpec(self.shape, self.dtype))
        (copy,) = self.devices.compile(module.encode(), [spec])(self)
        return copy


def gathering(mesh: Mesh, spec: Spec, array: BufferSpec) -> str:
    """Return a module that copies its argument, which is split as ``spec`` says, whole to each device."""
    axes = ", ".join(f"{json.dumps(name)}={size}" for name, size in mesh.axes.items())
    parts = ", ".join(f"{{{', '.join(map(json.dumps, names))}}}" for names in spec)
    whole = ", ".join(["{}"] * len(spec))
    type_ = f"tensor<{''.join(f'{size}x' for size in array.shape)}{array.dtype.mlir}>"
    return f"""
        sdy.mesh @mesh = <[{axes}]>
        func.func public @main(%0: {type_} {{sdy.sharding = #sdy.sharding<@mesh, [{parts}]>}})
            -> ({type_} {{sdy.sharding = #sdy.sharding<@mesh, [{whole}]>}}) {{
          return %0 : {type_}
        }}
    """


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
        self._execute = _jaxlib_runs.partitioned_executor(handle)
        parts = _jaxlib_meshes.result_parts(handle, [one.shape for one in self.outputs], devices.mesh.size)
        self._results = [
            ([where[place] for place in devices.local], self._spec_of(spec.shape, where))
            for spec, where in zip(self.outputs, parts, strict=True)
        ]

    def _spec_of(self, shape: Sequence[int], parts: Sequence[Part]) -> Spec | None:
        """Return the spec of an argument with this shape and the same parts; None if there is none."""
        known = zip(self.inputs, self._shardings, self._parts, strict=True)
        return next((spec for one, spec, own in known if one.shape == shape and own == parts), None)

    def __call__(self, *arguments: Any) -> list[Buffer]:
        """Run on arguments that :meth:`place` accepts; the results are in parts, too.

        Raises InputMismatch naming a wrong argument, and EngineError if the execution fails.
        """
        check_count(len(arguments), len(self.inputs))
        if forks.threads_lost:
            forks.refuse_lost_threads()
        placed = [self.place(argument, position) for position, argument in enumerate(arguments)]
        mesh, handles = self.devices.mesh, self.devices.handles
        arrays = [
            _jaxlib_meshes.join_parts(buffer.array, buffer.shape, mesh.axes, spec, handles)
            for buffer, spec in zip(placed, self._shardings, strict=True)
        ]
        try:
            with one_at_a_time, spans.span("run", self.compiled.name, self):
                results = self._execute(arrays)
                _jaxlib_runs.wait(results)
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(f"the program failed on the mesh {mesh}: {error}") from error
        return [
            ShardedBuffer(parts, one.shape, one.dtype, self.devices, slices, spec)
            for parts, one, (slices, spec) in zip(results, self.outputs, self._results, strict=True)
        ]

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The program of one device, as the engine compiled it."""
        name, text = _jaxlib.optimized_module(self._handle)
        return Compiled(name, text, _jaxlib.memory_sizes(self._handle))

    def place(self, array: Any, position: int) -> ShardedBuffer:
        """Split ``array`` into the parts that the argument at ``position`` has.

        ``array`` is a Buffer, a NumPy array, a torch tensor, a DLPack object or the
        :class:`~torchstone.LocalPart` of one of these. If it has the right parts already, it is returned as
        it is. Raises :class:`~torchstone.errors.InputMismatch` if it is not what the program takes.
        """
        slices = [self._parts[position][place] for place in self.devices.local]
        spec = self.inputs[position]
        if isinstance(array, ShardedBuffer) and array.slices == slices:
            check_buffer(array, spec, position)
            return array
        if isinstance(array, ShardedBuffer):
            array = array.to_numpy()
        if isinstance(array, LocalPart):
            given, starts = self._part_of_process(array, slices, spec.label(position), spec.dtype)
        else:
            buffer = import_array(self.devices.staging, array)
            check_buffer(buffer, spec, position)
            given, starts = buffer.to_numpy(), [0] * len(spec.shape)
        parts = []
        for where, place in zip(slices, self.devices.local, strict=True):
            inside = tuple(
                slice(one.start - start, one.stop - start) for one, start in zip(where, starts, strict=True)
            )
            # The transfer may share its source's memory.
            part = numpy.array(given[inside], order="C", copy=True)
            counters.copied("in", "parts of a mesh", part.nbytes)
            parts.append(_jaxlib.put(part, self.devices.handles[place]))
        return ShardedBuffer(parts, spec.shape, spec.dtype, self.devices, slices, self._shardings[position])

    def _part_of_process(
        self, given: LocalPart, slices: Sequence[Part], label: str, dtype: DType
    ) -> tuple[numpy.ndarray[Any, Any], list[int]]:
        """Return the part of an argument that this process has, and where it begins in the whole."""
        own = block(slices)
        if own is None:
            raise InputMismatch(
                f"{label} is a LocalPart, and the parts of this process's devices are not one block of it",
                hint="pass the whole argument, or order the axes of the mesh so that processes come first",
            )
        buffer = import_array(self.devices.staging, given.array)
        wanted = BufferSpec(tuple(one.stop - one.start for one in own), dtype)
        if (buffer.shape, buffer.dtype) != (wanted.shape, wanted.dtype):
            place = ", ".join(f"{one.start}:{one.stop}" for one in own)
            raise InputMismatch(
                f"the part of {label} that this process has must be {wanted}, found "
                f"{BufferSpec(buffer.shape, buffer.dtype)}",
                hint=f"its devices compute with [{place}] of the whole",
            )
        return buffer.to_numpy(), [one.start for one in own]
