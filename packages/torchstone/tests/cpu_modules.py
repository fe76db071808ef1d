"""The text that XLA's CPU compiler gets for a module."""

from __future__ import annotations

from functools import partial

from torchstone.runtime import _jaxlib, cpu, modules


def rewritten(module: str | bytes, *, saving: bool = False) -> str:
    """The text of ``module`` as it is compiled for XLA's CPU; ``saving`` is as in ``cpu.rewrite``."""
    context, rewrite = _jaxlib.make_context(), partial(cpu.rewrite, saving=saving)
    with context:
        return str(_jaxlib.parse(modules.read(module, rewrite=rewrite).bytecode, context))
