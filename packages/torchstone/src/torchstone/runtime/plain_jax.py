"""The JAX engine: programs as JAX itself compiles and runs them on its CPU.

It differs from :mod:`.pjrt` in what surrounds XLA: its options are the defaults, no layouts are
assigned and nothing is written around XLA's bugs. Arguments and results are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import EngineError
from . import _jaxlib, modules
from .buffers import Buffer, import_array
from .counters import counters
from .engine import CompileOptions
from .executable import LoadedProgram
from .plugins import open_device


class JaxEngine:
    """Calls programs by ``jax.jit``; they are compiled at their first call."""

    name = "jax"
    platform = "cpu"

    def __init__(self) -> None:
        _, self.device = open_device("cpu")

    def compile(
        self,
        module: bytes | str,
        *,
        options: CompileOptions | None = None,
        input_names: Sequence[str] | None = None,
    ) -> LoadedProgram:
        """See :class:`~torchstone.runtime.engine.Engine`; options mean nothing here and are ignored."""
        parsed = modules.read(module)
        try:
            function = _jaxlib.jax_function(
                modules.portable(parsed),
                [(spec.shape, spec.dtype.numpy) for spec in parsed.inputs],
                [(spec.shape, spec.dtype.numpy) for spec in parsed.outputs],
            )
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(f"JAX does not take the program: {error}") from error
        counters.happened("compiles")

        def run(arrays: list[Any]) -> list[Any]:
            results = function(*map(_jaxlib.to_numpy, arrays))
            return [_jaxlib.put(result, self.device.handle) for result in results]

        return LoadedProgram(run, modules.named(parsed.inputs, input_names), parsed.outputs, self.device)

    def import_array(self, array: Any) -> Buffer:
        """See :func:`torchstone.runtime.buffers.import_array`."""
        return import_array(self.device, array)
