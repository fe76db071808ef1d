"""Refuses draws from random generators that are objects, such as ``numpy.random.default_rng()``.

Only the state of a generator shows whether code has drawn from it. So the generators that code of a step can
reach are found, and their states are compared after the trace. Functions of modules such as ``random`` are
handled in :mod:`.randomness`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .randomness import DRAW
from .reach import reachable
from .recipe import Recipe
from .refusals import Refused


@contextmanager
def refusing_draws(recipe: Recipe) -> Iterator[None]:
    """Raise :class:`Refused` if code in the block drew from a generator, after restoring its state."""
    found = [(name, one, _state(one)) for name, one in _generators(recipe)]
    drawn = []
    try:
        yield
    finally:
        for name, one, before in found:
            if repr(_state(one)) != repr(before):
                _restore(one, before)
                module = "random" if isinstance(one, random.Random) else "numpy.random"
                drawn.append(f"{name}, a {module}.{type(one).__name__},")
    if drawn:
        what = f"code of the step draws from {drawn[0]} while the step is traced"
        raise Refused(f"{what}, and every step would have the same numbers", DRAW)


def _generators(recipe: Recipe) -> Iterator[tuple[str, Any]]:
    """Yield the generators that the loss or the modules refer to, with their names."""
    kinds = _kinds()
    for name, value in reachable(recipe):
        if isinstance(value, kinds) and not isinstance(value, random.SystemRandom):  # it has no state
            yield name, value


def _kinds() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy.random")
    return (random.Random, *((numpy.Generator, numpy.RandomState) if numpy is not None else ()))


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state() if hasattr(generator, "get_state") else generator.bit_generator.state


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state
