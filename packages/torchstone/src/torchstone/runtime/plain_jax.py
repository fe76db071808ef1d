"""The JAX engine: programs as JAX itself compiles and runs them on its CPU.

It differs from :mod:`.pjrt` in what surrounds XLA: its options are the defaults, no layouts are
assigned and nothing is written around XLA's bugs. Arguments and results are copied.
"""

from __future__ import annotations

from typing import Any

from ..errors import EngineError
from . import _jaxlib, modules
from .hosted import Function, HostedEngine


class JaxEngine(HostedEngine):
    """Calls programs by ``jax.jit``; they are compiled at their first call."""

    name = "jax"
    platform = "cpu"

    def translate(self, program: modules.Module) -> Function:
        """Raises :class:`EngineError` where JAX does not take the program."""
        try:
            function = _jaxlib.jax_function(
                modules.portable(program),
                [(spec.shape, spec.dtype.numpy) for spec in program.inputs],
                [(spec.shape, spec.dtype.numpy) for spec in program.outputs],
            )
        except _jaxlib.RUNTIME_ERRORS as error:
            raise EngineError(f"JAX does not take the program: {error}") from error

        def run(arrays: Any) -> Any:
            return function(*arrays)

        return run
