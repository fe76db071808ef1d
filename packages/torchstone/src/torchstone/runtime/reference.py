"""The reference engine: the StableHLO interpreter, which is slow and follows the specification.

It runs in a child process (:mod:`._reference_worker`), because it aborts its process if
it does not support something. A crash, a timeout or an unsupported operation raises
:class:`EngineError`, and the next call works again. Buffers are on the embedded CPU, as
with :mod:`.pjrt`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import IO, Any

import numpy

from .. import dtypes
from ..config import config
from ..errors import EngineError, UnsupportedByEngine
from . import _interpreter_programs, modules
from ._reference_worker import Arrays, RemoteError, receive_arrays, send_arrays
from .buffers import BufferSpec
from .hosted import Function, HostedEngine

_DECOMPOSE = "the interpreter asks for it to be decomposed first"

UNSUPPORTED_OPERATIONS: Mapping[str, str] = {
    "stablehlo.batch_norm_grad": _DECOMPOSE,
    "stablehlo.batch_norm_inference": _DECOMPOSE,
    "stablehlo.batch_norm_training": _DECOMPOSE,
    "stablehlo.broadcast": _DECOMPOSE,
    "stablehlo.cholesky": _DECOMPOSE,
    "stablehlo.custom_call": "the interpreter knows no custom calls",
    "stablehlo.dot": _DECOMPOSE,
    "stablehlo.einsum": _DECOMPOSE,
    "stablehlo.fft of 32-bit values": "the interpreter takes 64-bit values only",
    "stablehlo.partition_id": "the interpreter runs one device only",
    "stablehlo.replica_id": "the interpreter runs one device only",
    "stablehlo.rng": _DECOMPOSE,
    "stablehlo.rng_bit_generator": _DECOMPOSE,
    "stablehlo.set_dimension_size": "the interpreter has no dynamic result types",
    "stablehlo.torch_index_select": _DECOMPOSE,
    "stablehlo.triangular_solve of a batch": "the interpreter reads the diagonal of one matrix only",
    "stablehlo.unary_einsum": _DECOMPOSE,
}
"""Operations that the interpreter of this jaxlib cannot run, with the reasons."""

_BOOT = """\
import json, sys
from multiprocessing.connection import Connection
requests, answers, path = json.loads(sys.argv[1])
sys.path[:] = path
from torchstone.runtime._reference_worker import serve
serve(Connection(requests), Connection(answers))
"""


class ReferenceEngine(HostedEngine):
    """An engine for the StableHLO interpreter; one child process runs all its programs, one at a time."""

    name = "reference"
    platform = "interpreter"

    def __init__(self) -> None:
        super().__init__()
        self._worker = _Worker()

    def translate(self, program: modules.Module) -> Function:
        """Return a function that runs ``program`` in the child process.

        Raises :class:`UnsupportedByEngine` naming all operations that the interpreter lacks.
        """
        translated, operations = modules.for_interpreter(program)
        unsupported = sorted(operations & UNSUPPORTED_OPERATIONS.keys())
        if unsupported:
            raise UnsupportedByEngine(self.name, {one: UNSUPPORTED_OPERATIONS[one] for one in unsupported})

        def run(arrays: Sequence[numpy.ndarray[Any, Any]]) -> list[numpy.ndarray[Any, Any]]:
            carried = [part for array in arrays for part in _to_storage(array)]
            answers = iter(self._worker.run(translated, carried))
            return [_from_storage(spec, answers) for spec in program.outputs]

        return run


def _to_storage(values: numpy.ndarray[Any, Any]) -> list[numpy.ndarray[Any, Any]]:
    """Return the arrays that carry one tensor; see :func:`._interpreter_programs.storage_type`."""
    dtype = dtypes.from_numpy(values.dtype)
    if dtype.is_complex:
        return [values.real, values.imag]
    storage = _storage_dtype(dtype)
    if dtype in dtypes.SUB_BYTE:
        return [values.astype(storage)]
    return [numpy.ascontiguousarray(values).view(storage).reshape(values.shape)]


def _from_storage(spec: BufferSpec, answers: Any) -> numpy.ndarray[Any, Any]:
    """Read the arrays that carry one tensor from an iterator: the inverse of :func:`_to_storage`."""
    if spec.dtype.is_complex:
        result = numpy.empty(spec.shape, spec.dtype.numpy)
        result.real, result.imag = (next(answers).reshape(spec.shape) for _ in range(2))
        return result
    values = numpy.ascontiguousarray(next(answers))
    if spec.dtype in dtypes.SUB_BYTE:
        return values.astype(spec.dtype.numpy).reshape(spec.shape)
    return values.view(spec.dtype.numpy).reshape(spec.shape)


def _storage_dtype(dtype: dtypes.DType) -> numpy.dtype[Any]:
    return dtypes.from_mlir(_interpreter_programs.storage_type(dtype.mlir)).numpy


class _Child:
    """A running worker process and its pipes; ``stop`` ends it, and is called when this object is deleted."""

    def __init__(self) -> None:
        """Start the process with this process's import path; it does not import ``__main__``."""
        request_read, request_write = os.pipe()
        answer_read, answer_write = os.pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - stop() closes it
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([request_read, answer_write, sys.path])],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            pass_fds=(request_read, answer_write),
            start_new_session=True,  # so that its forks can be ended with it
        )
        os.close(request_read)
        os.close(answer_write)
        self.requests = Connection(request_write, readable=False)
        self.answers = Connection(answer_read, writable=False)
        self.stop = weakref.finalize(self, _release, self.process, self.requests, self.answers, self.log)

    def last_line(self) -> str:
        """Return the last line that the worker or its fork printed, after a colon; empty if there is none."""
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:500]}" if lines else ""


def _release(
    process: subprocess.Popen[bytes], requests: Connection, answers: Connection, log: IO[bytes]
) -> None:
    requests.close()
    answers.close()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    log.close()


class _Worker:
    """The child process; started at first use, and again after it died or took too long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def run(self, program: bytes, arrays: Arrays) -> list[numpy.ndarray[Any, Any]]:
        """Run one program in the child process; every failure raises :class:`EngineError`."""
        with self._lock:
            child = self._child = self._child or _Child()
            child.log.seek(0)  # the child shares the file offset
            child.log.truncate()
            try:
                child.requests.send_bytes(program)
                send_arrays(child.requests, arrays)
                if not child.answers.poll(config.worker_timeout_s):
                    raise EngineError(
                        f"the reference engine took longer than {config.worker_timeout_s:g} s",
                        hint="set TORCHSTONE_WORKER_TIMEOUT_S higher, or use a smaller program",
                    )
                return receive_arrays(child.answers)
            except RemoteError as error:
                raise EngineError(
                    f"{error}{child.last_line()}",
                    hint="the program uses something that the interpreter lacks; use the pjrt engine",
                ) from error
            except BaseException as error:  # interruptions too: they would leave an unread answer in the pipe
                self._child = None
                last = child.last_line()
                child.stop()
                if isinstance(error, (EOFError, OSError)):
                    raise EngineError(
                        f"the reference engine's process ended{last}", hint="call again: a new one is started"
                    ) from error
                raise
