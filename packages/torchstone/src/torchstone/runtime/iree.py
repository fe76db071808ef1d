"""The IREE engine: a second compiler and runtime for the same programs, on the host's CPU.

``iree-compile`` runs as a command, so a crash of the compiler raises :class:`EngineError` and does not
end this process. Compiled programs run in this process, in IREE's own memory, so arguments and results
are copied. IREE's packages are an extra, ``torchstone[iree]``, and are imported when the engine is made.

Not here: what IREE lacks or gets wrong, and how programs are rewritten for it (:mod:`._iree_programs`).
"""

from __future__ import annotations

import math
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from .. import dtypes
from ..config import config
from ..errors import EngineError, MissingExtra
from . import _iree_programs, _jaxlib, modules
from .buffers import Buffer, BufferSpec
from .cache import MemoryCache, digest
from .counters import counters
from .engine import CompileOptions
from .executable import LoadedProgram
from .imports import import_array
from .plugins import open_device

FLAGS = (
    "--iree-input-type=stablehlo",
    "--iree-hal-target-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    # By default IREE computes float64 in float32.
    "--iree-input-demote-f64-to-f32=false",
)
"""The flags of ``iree-compile``."""

LINK_WITH_LIBM = "--iree-llvmcpu-link-embedded=false"
"""Uses the system's linker, which adds functions that IREE has in float32 only; slower than IREE's own."""


class IreeEngine:
    """An engine that compiles with ``iree-compile`` for the host's CPU, and runs one program at a time.

    Raises :class:`MissingExtra` if IREE's packages are not installed.
    """

    name = "iree"
    platform = "llvm-cpu"

    def __init__(self) -> None:
        try:
            import iree.runtime
            from iree.compiler.tools.binaries import find_tool
        except ImportError as error:
            raise MissingExtra(f"the iree engine needs IREE's packages: {error}", extra="iree") from error
        self._command = [find_tool("iree-compile"), "-", *FLAGS]
        self.runtime: Any = iree.runtime
        self.settings: Any = iree.runtime.Config("local-sync")
        self.lock = threading.Lock()
        _, self.device = open_device("cpu")
        self._loaded: MemoryCache[_Function] = MemoryCache()

    def compile(
        self,
        module: bytes | str,
        *,
        options: CompileOptions | None = None,
        input_names: Sequence[str] | None = None,
    ) -> LoadedProgram:
        """See :class:`~torchstone.runtime.engine.Engine`.

        XLA options and donation are ignored. Raises :class:`UnsupportedDtype` for dtypes that IREE
        lacks, and :class:`EngineError` with the compiler's first error message.
        """
        program = modules.as_bytes(module)
        key = digest([program])
        function, found = self._loaded.get(key, lambda: self._load(program), config.memory_cache_entries)
        if found:
            counters.happened("memory_hits")
        inputs = modules.named(function.inputs, input_names)
        return LoadedProgram(function, inputs, function.outputs, self.device)

    def import_array(self, array: Any) -> Buffer:
        """See :func:`torchstone.runtime.imports.import_array`."""
        return import_array(self.device, array)

    def _load(self, program: bytes) -> _Function:
        parsed = modules.read(program)
        binary = _compile(self._command, _iree_programs.prepare(parsed.bytecode))
        counters.happened("compiles")
        return _Function(self, binary, parsed)


class _Function:
    """The ``@main`` of a compiled program; it takes and returns arrays on the embedded CPU."""

    def __init__(self, engine: IreeEngine, binary: bytes, program: modules.Module) -> None:
        self.inputs, self.outputs = program.inputs, program.outputs
        self._engine, runtime = engine, engine.runtime
        module = runtime.VmModule.copy_buffer(engine.settings.vm_instance, binary)
        self._context = runtime.SystemContext(vm_modules=[module], config=engine.settings).vm_context
        self._main = module.lookup_function("main")

    def __call__(self, arrays: list[Any]) -> list[Any]:
        runtime, count = self._engine.runtime, len(self.outputs)
        given, returned = runtime.VmVariantList(len(arrays)), runtime.VmVariantList(count)
        for array, spec in zip(arrays, self.inputs, strict=True):
            given.push_ref(self._enter(_jaxlib.to_numpy(array), spec))
        with self._engine.lock:
            self._context.invoke(self._main, given, returned)
        views = [returned.get_as_object(position, runtime.HalBufferView) for position in range(count)]
        values = [_leave(view, spec) for view, spec in zip(views, self.outputs, strict=True)]
        return [_jaxlib.put(value, self._engine.device.handle) for value in values]

    def _enter(self, values: numpy.ndarray[Any, Any], spec: BufferSpec) -> Any:
        """Copy an argument to IREE's memory."""
        counters.copied("in", "to IREE", values.nbytes)
        runtime, device = self._engine.runtime, self._engine.settings.device
        return device.allocator.allocate_buffer_copy(
            memory_type=runtime.MemoryType.DEVICE_LOCAL,
            allowed_usage=runtime.BufferUsage.DEFAULT,
            device=device,
            buffer=numpy.ascontiguousarray(values).reshape(spec.shape),
            element_type=getattr(runtime.HalElementType, _ELEMENT_TYPES[spec.dtype]),
        )


def _leave(view: Any, spec: BufferSpec) -> numpy.ndarray[Any, Any]:
    """Copy a result out of IREE's memory."""
    if 0 in spec.shape:
        return numpy.empty(spec.shape, spec.dtype.numpy)
    size = math.prod(spec.shape) * spec.dtype.itemsize
    counters.copied("out", "from IREE", size)
    stored = view.map().asarray([size], numpy.dtype(numpy.uint8))
    return numpy.array(stored).view(spec.dtype.numpy).reshape(spec.shape)


_ELEMENT_TYPES: Mapping[dtypes.DType, str] = {
    dtypes.BOOL: "BOOL_8",
    dtypes.INT8: "INT_8",
    dtypes.INT16: "INT_16",
    dtypes.INT32: "INT_32",
    dtypes.INT64: "INT_64",
    dtypes.UINT8: "INT_8",
    dtypes.UINT16: "INT_16",
    dtypes.UINT32: "INT_32",
    dtypes.UINT64: "INT_64",
    dtypes.FLOAT16: "FLOAT_16",
    dtypes.BFLOAT16: "BFLOAT_16",
    dtypes.FLOAT32: "FLOAT_32",
    dtypes.FLOAT64: "FLOAT_64",
    dtypes.COMPLEX64: "COMPLEX_64",
    dtypes.COMPLEX128: "COMPLEX_128",
}
"""IREE's names of element types. Its integer types do not distinguish signed from unsigned."""


def _compile(command: Sequence[str], program: bytes) -> bytes:
    """Compile a portable artifact to IREE's bytecode; every failure raises :class:`EngineError`."""
    done = _run(command, program)
    if done.returncode and b"undefined symbol" in done.stderr:
        done = _run([*command, LINK_WITH_LIBM], program)
    if done.returncode == 0:
        return done.stdout
    said = done.stderr.decode(errors="replace").strip()
    error = re.search(r"error: (.*)", said)
    if done.returncode < 0:
        why = f"its compiler crashed ({signal.Signals(-done.returncode).name})"
    else:
        why = error[1] if error else (said.splitlines() or [f"exit code {done.returncode}"])[-1]
    raise EngineError(
        f"IREE cannot compile the program: {why[:_COMPLAINT]}", hint="use the pjrt engine for this program"
    )


def _run(command: Sequence[str], program: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            command, input=program, capture_output=True, timeout=config.worker_timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineError(
            f"IREE took longer than {config.worker_timeout_s:g} s to compile the program",
            hint="set TORCHSTONE_WORKER_TIMEOUT_S higher, or use the pjrt engine for this program",
        ) from None


_COMPLAINT = 300
"""How many characters of the compiler's message an error shows."""
