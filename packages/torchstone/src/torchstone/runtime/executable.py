"""The call layer between a caller's arrays and a compiled program, which itself checks nothing.

Each engine gives a :class:`LoadedProgram` a function from device arrays to
device arrays. This module imports and checks the arguments, counts copies, and names
arguments in errors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import spans
from ..errors import BufferDeleted, EngineError
from . import _jaxlib, forks, host
from .buffers import Buffer, BufferSpec, Device, check_buffer, check_count
from .counters import counters
from .imports import import_array

if TYPE_CHECKING:
    import torch

    from .residents import ResidentCall
    from .torch_calls import TorchCall

Run = Callable[..., list[Any]]
"""A function from device arrays to device arrays, in the order of ``@main``'s arguments and results."""


@dataclass(frozen=True)
class Compiled:
    """A program as an engine compiled it: the text of its optimized HLO, and bytes of memory by use."""

    name: str
    text: str = ""
    memory: Mapping[str, int] = field(default_factory=dict)


class LoadedProgram:
    """A compiled program on one device: the :class:`~.engine.Executable` of Torchstone's engines.

    ``long``: the program runs so long on the CPU that it pays to end OpenMP's waiting threads first.
    ``handle``: the engine's own object, which profiles read; None if the engine has none.
    """

    def __init__(
        self,
        run: Run,
        inputs: Sequence[BufferSpec],
        outputs: Sequence[BufferSpec],
        device: Device,
        *,
        donated: Iterable[int] = (),
        long: bool = False,
        handle: Any = None,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.device = device
        self._execute = run
        self._long = long
        self._handle = handle
        self._donated = frozenset(donated)
        self._torch_call: TorchCall | None = None

    def __call__(self, *arguments: Any) -> list[Buffer]:
        """Run on Buffers, NumPy arrays, torch tensors or DLPack objects.

        Raises :class:`InputMismatch` naming a wrong argument, :class:`BufferDeleted`
        for one that was donated, and :class:`EngineError` if the execution fails.
        """
        check_count(len(arguments), len(self.inputs))
        arrays = []
        for position, (argument, spec) in enumerate(zip(arguments, self.inputs, strict=True)):
            buffer = import_array(self.device, argument)
            check_buffer(buffer, spec, position)
            if buffer.aliased and position in self._donated:
                counters.copied("in", "donation of imported memory", buffer.array.nbytes)
            arrays.append(buffer.array)
        return [
            Buffer(array, spec.shape, spec.dtype, self.device, aliased=False)
            for array, spec in zip(self.run_arrays(arrays), self.outputs, strict=True)
        ]

    def run_torch(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run on torch tensors; the results are torch CPU tensors (the same memory on the CPU)."""
        if self._torch_call is None:
            self._torch_call = self.torch_call()
        return self._torch_call(tensors)

    def torch_call(
        self, static: Iterable[int] = (), *, guarded: bool = False, left: Collection[int] = ()
    ) -> TorchCall:
        """Return a fast function of a list of tensors, which imports ``static`` arguments only once.

        Donated arguments are imported in each call, even if they are static.
        ``guarded``: only the addresses of static arguments can change between calls. ``left`` are the
        positions of results that stay in the memory of a GPU, if PyTorch can use that GPU too.
        """
        from .gpu_calls import GpuCall
        from .streams import torch_device
        from .torch_calls import TorchCall

        kind = TorchCall if torch_device(self.device) is None else GpuCall
        return kind(
            self.run_arrays,
            self.inputs,
            self.outputs,
            self.device,
            static,
            self._donated,
            guarded=guarded,
            left=left,
        )

    def resident_call(self, residents: int, updates: Sequence[tuple[int, int]]) -> ResidentCall:
        """Return a function whose first ``residents`` arguments are engine memory, the others torch tensors.

        ``updates`` are pairs of a resident and the result that takes its place.
        """
        from .residents import ResidentCall

        return ResidentCall(self.run_arrays, self.inputs, self.outputs, self.device, residents, updates)

    def run_arrays(self, arrays: list[Any], *execution: Any) -> list[Any]:
        """Run on the device's own arrays without checks: the caller knows that they match ``inputs``.

        With the engine ``pjrt``, ``execution`` may be one :class:`~._jaxlib_runs.Execution`.
        """
        if forks.threads_lost:
            forks.refuse_lost_threads()
        if self._long:
            host.pause_openmp()
        if spans.recorders or spans.torch_records():
            with spans.span("run", self.compiled.name, self):
                return self._run(arrays, *execution)
        return self._run(arrays, *execution)

    @functools.cached_property
    def compiled(self) -> Compiled:
        """The program as the engine compiled it."""
        if self._handle is None:
            return Compiled("program")
        name, text = _jaxlib.optimized_module(self._handle)
        return Compiled(name, text, self.memory)

    @functools.cached_property
    def memory(self) -> Mapping[str, int]:
        """Bytes of memory by use, as the engine counts them; empty if it does not count them."""
        return {} if self._handle is None else _jaxlib.memory_sizes(self._handle)

    def _run(self, arrays: list[Any], *execution: Any) -> list[Any]:
        try:
            return self._execute(arrays, *execution)
        except _jaxlib.RUNTIME_ERRORS as error:
            for position, array in enumerate(arrays):
                if array.is_deleted():
                    name = self.inputs[position].label(position)
                    raise BufferDeleted(
                        f"{name} was donated to an earlier execution and is gone",
                        hint="pass that execution's result instead, or compile without donation",
                    ) from error
            raise EngineError(f"the program failed on {self.device.name}: {error}") from error
