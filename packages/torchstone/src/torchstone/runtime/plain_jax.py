"""The JAX engine: JAX itself compiles and runs programs on its CPU.

It also uses XLA, but without what :mod:`.pjrt` adds: XLA's options have their defaults, no layouts are
assigned, and there are no workarounds for XLA's bugs. Arguments and results are copied.
"""

from __future__ import annotations

from typing import Any

from ..errors import EngineError
from . import _jaxlib, modules
from .hosted import Function, HostedEngine


class JaxEngine(HostedEngine):
    """An engine that runs programs with ``jax.jit``, which compiles each at its first call."""

    name = "jax"
    platform = "cpu"

    def translate(self, program: modules.Module) -> Function:
        """Return a function that runs ``program``; raise :class:`EngineError` if JAX does not accept it."""
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
