"""What the compiler knows about operators besides their lowerings: how PyTorch runs and traces them.

This package has kernels, shape rules and derivatives of Torchstone's own operators, decompositions,
stand-ins for kernels that cannot be traced, the arguments that eager PyTorch refuses, and the operators
without effect. Each module adds its part to the operators' records when it is imported.
"""

from __future__ import annotations

import pkgutil

from ...lowering import import_parts
from ...lowering.registry import registry

__all__ = ["registry"]

import_parts(__name__, sorted(module.name for module in pkgutil.iter_modules(__path__)))
