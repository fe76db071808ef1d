"""Generators: make deterministic inputs for a case, and expected outputs if they know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base import Generator, load_generator
from .edge import EdgeGenerator
from .random import RandomTensorGenerator

if TYPE_CHECKING:
    from .property import HypothesisGenerator, inputs_strategy

__all__ = [
    "EdgeGenerator",
    "Generator",
    "HypothesisGenerator",
    "RandomTensorGenerator",
    "inputs_strategy",
    "load_generator",
]


def __getattr__(name: str) -> Any:
    """Load Hypothesis only when it is needed: it takes longer to load than all the rest."""
    if name in ("HypothesisGenerator", "inputs_strategy"):
        from . import property

        return getattr(property, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
