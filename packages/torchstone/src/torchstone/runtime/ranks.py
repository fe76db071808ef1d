"""Programs that several ranks run together, each on its own device and its own arrays.

Not here: programs that the compiler splits over a mesh (:mod:`.sharded`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import spans
from ..errors import EngineError, ShardingError
from . import _jaxlib, _jaxlib_meshes, _jaxlib_runs, forks
from .buffers import Buffer, BufferSpec, Device, check_buffer, check_count
from .executable import Compiled
from .imports import import_array
from .sharded import one_at_a_time


@dataclass(frozen=True)
class RankDevices:
    """The devices of all ranks, in order. ``local`` maps the ranks of this process to their devices."""

    handles: tuple[Any, ...]
    local: Mapping[int, Device]


def rank_devices(client: Any, platform: str, count: int, *, shares_host_memory: bool) -> RankDevices:
    """Return the first ``count`` devices of a platform, one for each rank, over all processes of its client.

    Raises :class:`~torchstone.errors.ShardingError` if there are fewer.
    """
    handles = _jaxlib_meshes.all_devices(client)
    if len(handles) < count:
        raise ShardingError(
            f"the program is for {count} ranks, each on a device, and {platform} has {len(handles)}",
            hint=f"set TORCHSTONE_CPU_DEVICES={count} before the process starts"
            if shares_host_memory
            else f"run it where there are {count} devices",
        )
    here = {handle.id: place for place, handle in enumerate(_jaxlib.local_devices(client))}
    local = {
        rank: Device(f"{platform}:{here[handle.id]}", platform, shares_host_memory, handle)
        for rank, handle in enumerate(handles[:count])
        if handle.id in here
    }
    return RankDevices(tuple(handles[:count]), local)


class RankedProgram:
    """A program compiled for several ranks; this process runs it for the ranks whose devices it has."""

    def __init__(
        self, handle: Any, inputs: Sequence[BufferSpec], outputs: Sequence[BufferSpec], devices: RankDevices
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.devices = devices
        self._handle = handle
        self._execute = _jaxlib_runs.partitioned_executor(handle)

    def __call__(self, arguments: Mapping[int, Sequence[Any]]) -> dict[int, list[Buffer]]:
        """Run on the arguments of each rank of this process; :meth:`place` says what they may be.

        The results are by rank, too. Raises InputMismatch naming a wrong argument, and EngineError if the
        execution fails.
        """
        local = self.devices.local
        if forks.threads_lost:
            forks.refuse_lost_threads()
        placed = []
        for rank in local:
            check_count(len(arguments[rank]), len(self.inputs))
            placed.append([self.place(one, at, rank).array for at, one in enumerate(arguments[rank])])
        ranks = {"ranks": len(self.devices.handles)}
        arrays = [
            _jaxlib_meshes.join_parts(parts, spec.shape, ranks, (), self.devices.handles)
            for parts, spec in zip(zip(*placed, strict=True), self.inputs, strict=True)
        ]
        try:
            with one_at_a_time, spans.span("run", self.compiled.name, self):
                results = self._execute(arrays)
                _jaxlib_runs.wait(results)
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(f"the program failed on {len(self.devices.handles)} ranks: {error}") from error
        return {
            rank: [
                Buffer(parts[place], spec.shape, spec.dtype, device, aliased=False)
                for parts, spec in zip(results, self.outputs, strict=True)
            ]
            for place, (rank, device) in enumerate(local.items())
        }

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The program of one rank, as the engine compiled it."""
        name, text = _jaxlib.optimized_module(self._handle)
        return Compiled(name, text, _jaxlib.memory_sizes(self._handle))

    def place(self, array: Any, position: int, rank: int) -> Buffer:
        """Import ``array`` on the device of ``rank``, as the argument at ``position``.

        ``array`` is a Buffer, a NumPy array, a torch tensor or a DLPack object. Raises
        :class:`~torchstone.errors.InputMismatch` if it does not have the argument's shape and dtype.
        """
        buffer = import_array(self.devices.local[rank], array)
        check_buffer(buffer, self.inputs[position], position)
        return buffer

    def part(self, rank: int) -> RankPart:
        """The program as ``rank`` sees it."""
        return RankPart(self, rank)


@dataclass(frozen=True)
class RankPart:
    """One rank of a program that ranks run together."""

    program: RankedProgram
    rank: int

    @property
    def inputs(self) -> tuple[BufferSpec, ...]:
        """The specs of the program's arguments."""
        return self.program.inputs

    @property
    def outputs(self) -> tuple[BufferSpec, ...]:
        """The specs of the program's results."""
        return self.program.outputs

    def place(self, array: Any, position: int) -> Buffer:
        """See :meth:`RankedProgram.place`."""
        return self.program.place(array, position, self.rank)
