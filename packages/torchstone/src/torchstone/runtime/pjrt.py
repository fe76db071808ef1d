"""The PJRT engine: XLA's CPU, or any device with a PJRT plugin.

Programs on the embedded CPU run in the calling thread, so no input is read
after the call has returned. Checks on arguments are in :mod:`.executable`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import spans
from ..config import config
from ..errors import EngineError, ShardingError
from ..sharding import Mesh, Spec
from . import _jaxlib, _jaxlib_meshes, _jaxlib_runs, cpu, forks, host, mappings, modules, workarounds
from .buffers import Buffer, BufferSpec
from .cache import DiskCache, MemoryCache, digest
from .counters import counters
from .decisions import Decisions
from .engine import CompileOptions, XlaValue
from .executable import LoadedProgram
from .imports import import_array
from .plugins import EMBEDDED, open_device, shared_client
from .ranks import RankDevices, RankedProgram, rank_devices
from .sharded import MeshDevices, ShardedProgram

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class _Compiled:
    """A loaded program and its signature, without the names of one caller."""

    handle: Any
    inputs: tuple[BufferSpec, ...]
    outputs: tuple[BufferSpec, ...]


def _saves(options: CompileOptions) -> bool:
    """Whether a program is to keep few values in memory at once."""
    return config.save_memory if options.save_memory is None else options.save_memory


class PjrtEngine:
    """An engine for one PJRT device, with a cache in memory and on disk. Safe to use from several threads."""

    name = "pjrt"

    def __init__(self, device: str = "cpu", plugin: str = "") -> None:
        forks.refuse_lost_threads()
        forks.threads_start()
        self._client, self.device = open_device(device, plugin)
        self.platform = self.device.platform
        self._unknown: set[str] = set()
        self.channels_last = self.device.shares_host_memory
        if self.device.shares_host_memory:
            host.keep_freed_memory()
        self._loaded: MemoryCache[_Compiled] = MemoryCache()
        mappings.give_up_when_scarce(self._loaded.clear)
        self._disks: dict[Path, DiskCache] = {}
        self.decisions = self._decisions()

    def compile(
        self,
        module: bytes | str,
        *,
        options: CompileOptions | None = None,
        input_names: Sequence[str] | None = None,
    ) -> LoadedProgram:
        """See :class:`~torchstone.runtime.engine.Engine`; raises :class:`EngineError` if XLA refuses."""
        options = options or CompileOptions()
        compiled = self._compiled(modules.as_bytes(module), options)
        program = LoadedProgram(
            _jaxlib_runs.executor(
                compiled.handle,
                self.device.handle,
                [(one.shape, one.dtype.numpy) for one in compiled.outputs],
            ),
            modules.named(compiled.inputs, input_names),
            compiled.outputs,
            self.device,
            donated=options.consumed,
            handle=compiled.handle,
            long=self.device.shares_host_memory and host.is_long(_jaxlib.cost(compiled.handle)),
        )
        if self.device.shares_host_memory:
            sizes = _jaxlib.memory_sizes(compiled.handle)
            host.keep_memory_of(program, sizes.get("intermediate", 0) + sizes.get("outputs", 0))
        return program

    def compile_for_mesh(
        self,
        module: bytes,
        mesh: Mesh,
        shardings: Sequence[Spec],
        *,
        input_names: Sequence[str] | None = None,
    ) -> ShardedProgram:
        """Compile for the first devices of this platform, as many as ``mesh`` has.

        The platform's devices are those of all processes that ``jax.distributed.initialize`` joined.
        ``shardings`` are the shardings of the arguments in the module. Raises
        :class:`~torchstone.errors.ShardingError` if there are fewer devices than in the mesh. With several
        processes, it also raises that if there are more.
        """
        devices = self.mesh_devices(mesh)
        staging = self.device if self.device.shares_host_memory else open_device(EMBEDDED)[1]
        compiled = self._compiled(module, CompileOptions(mesh=mesh))
        return ShardedProgram(
            compiled.handle,
            modules.named(compiled.inputs, input_names),
            compiled.outputs,
            MeshDevices(mesh, tuple(devices), staging, partial(self._compile_again, mesh)),
            shardings,
        )

    def _compile_again(self, mesh: Mesh, module: bytes, shardings: Sequence[Spec]) -> ShardedProgram:
        return self.compile_for_mesh(module, mesh, shardings)

    def compile_for_ranks(
        self, module: bytes, ranks: int, *, input_names: Sequence[str] | None = None
    ) -> RankedProgram:
        """Compile for the first devices of this platform, one for each of ``ranks``.

        The platform's devices are those of all processes that ``jax.distributed.initialize`` joined. Raises
        :class:`~torchstone.errors.ShardingError` if there are fewer devices than ranks.
        """
        devices = self.rank_devices(ranks)
        compiled = self._compiled(module, CompileOptions(ranks=ranks))
        inputs = modules.named(compiled.inputs, input_names)
        return RankedProgram(compiled.handle, inputs, compiled.outputs, devices)

    def rank_devices(self, ranks: int) -> RankDevices:
        """Return the devices that ``ranks`` ranks run on, one each, and which of them this process has."""
        client, shares = self._client_for(together=True), self.device.shares_host_memory
        return rank_devices(client, self.platform, ranks, shares_host_memory=shares)

    def mesh_devices(self, mesh: Mesh | None) -> list[Any]:
        """Return the devices of a mesh; without a mesh, or for one of size 1, this engine's own device."""
        if mesh is None or mesh.size == 1:
            return [self.device.handle]
        devices = _jaxlib_meshes.all_devices(self._client_for(together=True))
        processes, _ = _jaxlib_meshes.processes()
        if processes > 1 and len(devices) != mesh.size:
            raise ShardingError(
                f"the mesh {mesh} has {mesh.size} devices, and the {processes} processes have {len(devices)}",
                hint="export the program for a mesh of all devices",
            )
        if len(devices) < mesh.size:
            raise ShardingError(
                f"the mesh {mesh} needs {mesh.size} devices, and {self.platform} has {len(devices)}",
                hint="set TORCHSTONE_CPU_DEVICES before the process starts"
                if self.device.shares_host_memory
                else "export the program for a smaller mesh",
            )
        return devices[: mesh.size]

    def _client_for(self, *, together: bool) -> Any:
        """Return the client whose devices a program uses.

        ``together``: the program runs on several devices. With several processes, it then needs the client
        that has the devices of all of them.
        """
        several = together and _jaxlib_meshes.processes()[0] > 1
        return shared_client(self.platform) if several else self._client

    def _placed(self, options: CompileOptions) -> tuple[Any, list[list[Any]]]:
        """Return the client for a program, and a row of devices for each rank."""
        if options.ranks is not None:
            rows = [[handle] for handle in self.rank_devices(options.ranks).handles]
            return self._client_for(together=True), rows
        together = options.mesh is not None and options.mesh.size > 1
        return self._client_for(together=together), [self.mesh_devices(options.mesh)]

    def _compiled(self, program: bytes, options: CompileOptions) -> _Compiled:
        forks.refuse_lost_threads()
        key = self._key(program, options)
        compiled, found = self._loaded.get(
            key, lambda: self._load(key, program, options), config.memory_cache_entries
        )
        if found:
            counters.happened("memory_hits")
        return compiled

    @property
    def torch_device(self) -> torch.device | None:
        """PyTorch's device with the same memory as this engine; None for the CPU or if PyTorch has none."""
        from .streams import torch_device

        return torch_device(self.device)

    def import_array(self, array: Any) -> Buffer:
        """See :func:`torchstone.runtime.imports.import_array`."""
        return import_array(self.device, array)

    def clear_memory_cache(self) -> None:
        """Forget the loaded programs that nobody else holds."""
        self._loaded.clear()

    def _load(self, key: str, program: bytes, options: CompileOptions) -> _Compiled:
        """Load a program from disk, or compile it and store it there."""
        mappings.watch.make_room()
        disk = self._disk()
        if disk is not None:
            with spans.span("compile", "engine: read the cache"):
                found = self._read(disk, key, options)
            if found is not None:
                counters.happened("disk_hits")
                return found
        with spans.span("compile", "engine: read the module"):
            on_host = self.device.shares_host_memory
            rewrite = partial(cpu.rewrite, saving=_saves(options)) if on_host else None
            spans_processes = options.mesh is not None and self._placed(options)[0] is not self._client
            module = modules.read(
                program,
                donate=options.donate,
                updates=options.updates,
                rewrite=rewrite,
                replicate=spans_processes,
            )
        compiled = _Compiled(self._compile(module.bytecode, options), module.inputs, module.outputs)
        counters.happened("compiles")
        if disk is not None:
            with spans.span("compile", "engine: write the cache"):
                stored = self._write(disk, key, compiled)
            if stored:
                counters.happened("disk_stores")
        return compiled

    def _compile(self, bytecode: bytes, options: CompileOptions) -> Any:
        while True:
            try:
                with spans.span("compile", "engine: compile"):
                    client, devices = self._placed(options)
                    return _jaxlib.compile_program(client, bytecode, devices, self._xla(options))
            except _jaxlib.RUNTIME_ERRORS as error:
                # Drop a default that this jaxlib does not know; for an unknown option of the caller, raise.
                unknown = _jaxlib.unknown_option(error)
                if unknown in self._defaults(options) and unknown not in options.xla:
                    self._unknown.add(unknown)
                    continue
                raise EngineError(
                    f"XLA cannot compile the program for {self.device.name}: {error}"
                ) from error

    def _xla(self, options: CompileOptions) -> dict[str, XlaValue]:
        return {**self._defaults(options), **options.xla}

    def _defaults(self, options: CompileOptions) -> dict[str, XlaValue]:
        """Return the default options of every program, without those that this jaxlib does not know."""
        if not self.device.shares_host_memory:
            return {}
        chosen = {**cpu.OPTIONS, **(cpu.SAVING_OPTIONS if _saves(options) else {})}
        return {name: value for name, value in chosen.items() if name not in self._unknown}

    def _key(self, program: bytes, options: CompileOptions) -> str:
        """Return the cache key: a digest of all that decides the compiler's result and where it can run."""
        setting = {
            "defaults": self._defaults(options),
            "module": modules.VERSION,
            "rewritten": cpu.VERSION,
            "workarounds": workarounds.VERSION,
            "xla": dict(options.xla),
            "donate": options.donate,
            "updates": options.updates,
            "mesh": None if options.mesh is None else list(options.mesh.axes.items()),
            "ranks": options.ranks,
            "processes": _jaxlib_meshes.processes() if options.mesh or options.ranks else None,
            "device": self.device.name,
            "machine": _jaxlib.machine(self._client, self.device.handle),
            "versions": _jaxlib.versions(),
            "environment": [os.environ.get(name, "") for name in _jaxlib.COMPILER_VARIABLES],
        }
        return digest([program, json.dumps(setting, sort_keys=True).encode()])

    def _decisions(self) -> Decisions | None:
        """Return the store of measured choices for this machine; None for a device with its own memory."""
        if not self.device.shares_host_memory:
            return None
        machine = {
            "device": self.device.name,
            "machine": _jaxlib.machine(self._client, self.device.handle),
            "versions": _jaxlib.versions(),
            "rewritten": cpu.VERSION,
        }
        return Decisions(machine, self._disk, lambda: config.cache_max_bytes)

    def _disk(self) -> DiskCache | None:
        """Return the disk cache that the configuration asks for now, or None if it asks for none.

        There is one object per directory, so that it warns once.
        """
        if not config.cache:
            return None
        return self._disks.setdefault(config.cache_dir, DiskCache(config.cache_dir))

    def _read(self, disk: DiskCache, key: str, options: CompileOptions) -> _Compiled | None:
        payload = disk.read(key)
        if payload is None:
            return None
        try:
            header, _, image = payload.partition(b"\n")
            inputs, outputs = (modules.specs_from_json(specs) for specs in json.loads(header))
            client, devices = self._placed(options)
            handle = _jaxlib.deserialize_executable(client, image, devices, self._xla(options))
        except _jaxlib.RUNTIME_ERRORS:
            disk.discard(key)
            return None
        return _Compiled(handle, inputs, outputs)

    def _write(self, disk: DiskCache, key: str, compiled: _Compiled) -> bool:
        try:
            image = _jaxlib.serialize_executable(self._client, compiled.handle)
        except _jaxlib.RUNTIME_ERRORS:  # the platform cannot serialize, so the program is not stored
            return False
        header = json.dumps([modules.specs_to_json(specs) for specs in (compiled.inputs, compiled.outputs)])
        return disk.write(key, header.encode() + b"\n" + image, config.cache_max_bytes)
