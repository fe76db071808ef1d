"""The base class of engines in Python, such as simulators and interpreters.

For such an engine, a program is a function of NumPy arrays. Reading modules, buffers, checks and counters
work as for every other engine. Buffers are in the embedded CPU's memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from numpy.typing import NDArray

from . import _jaxlib, modules
from .buffers import Buffer
from .counters import counters
from .engine import CompileOptions
from .executable import LoadedProgram
from .imports import import_array
from .modules import Module
from .plugins import open_device

Function = Callable[[Sequence[NDArray[Any]]], Sequence[NDArray[Any]]]
"""A function from the arrays of ``@main``'s arguments, which it only reads, to those of its results."""


class HostedEngine(ABC):
    """An :class:`~torchstone.runtime.engine.Engine` in Python.

    A subclass sets ``name`` and ``platform``, and implements :meth:`translate`.
    """

    name: str
    platform: str

    def __init__(self) -> None:
        _, self.device = open_device("cpu")

    @abstractmethod
    def translate(self, program: Module) -> Function:
        """Return a function that runs ``program``.

        Raises :class:`UnsupportedByEngine` for operations that the engine cannot run.
        """

    def compile(
        self,
        module: bytes | str,
        *,
        options: CompileOptions | None = None,
        input_names: Sequence[str] | None = None,
    ) -> LoadedProgram:
        """See :class:`~torchstone.runtime.engine.Engine`. XLA options and donation are ignored."""
        program = modules.read(module)
        function = self.translate(program)
        counters.happened("compiles")

        def run(arrays: list[Any]) -> list[Any]:
            results = function([_jaxlib.to_numpy(array) for array in arrays])
            return [_jaxlib.put(numpy.asarray(one, order="C"), self.device.handle) for one in results]

        return LoadedProgram(run, modules.named(program.inputs, input_names), program.outputs, self.device)

    def import_array(self, array: Any) -> Buffer:
        """See :func:`torchstone.runtime.imports.import_array`."""
        return import_array(self.device, array)
