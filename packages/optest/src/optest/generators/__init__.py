"""Generators: deterministic inputs for a case, and expected outputs where they know them."""

from .base import Generator, load_generator
from .edge import EdgeGenerator
from .property import HypothesisGenerator, inputs_strategy
from .random import RandomTensorGenerator

__all__ = [
    "EdgeGenerator",
    "Generator",
    "HypothesisGenerator",
    "RandomTensorGenerator",
    "inputs_strategy",
    "load_generator",
]
