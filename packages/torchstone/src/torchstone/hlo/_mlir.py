"""The one place in ``hlo`` that imports MLIR's Python bindings.

The bindings come with jaxlib. Loading them takes a few tenths of a second, so
nothing outside ``hlo`` and ``runtime`` imports this at module level.
"""

from __future__ import annotations

from typing import Any

from jax.extend import mlir as jax_mlir
from jax.interpreters import mlir as jax_interpreters
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import chlo, func, sdy, stablehlo

__all__ = [
    "chlo",
    "func",
    "ir",
    "jax_interpreters",
    "jax_mlir",
    "new_context",
    "passmanager",
    "sdy",
    "stablehlo",
]


def new_context() -> Any:
    """A fresh MLIR context with the StableHLO, CHLO and func dialects loaded."""
    context = jax_interpreters.make_ir_context()
    context.enable_multithreading(False)
    return context
