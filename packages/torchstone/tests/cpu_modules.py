"""The text that XLA's CPU compiler gets for a module."""

from __future__ import annotations

from torchstone.runtime import _jaxlib, cpu, modules


def rewritten(module: str | bytes) -> str:
    """The text of ``module`` as it is compiled for XLA's CPU."""
    context = _jaxlib.make_context()
    with context:
        return str(_jaxlib.parse(modules.read(module, rewrite=cpu.rewrite).bytecode, context))
