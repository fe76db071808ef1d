"""A small program of every operator of the inventory; ``OPERATIONS`` has them by family and name."""

from __future__ import annotations

from . import arrays, elementwise, layers, modelled
from .operation import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Operation"]
