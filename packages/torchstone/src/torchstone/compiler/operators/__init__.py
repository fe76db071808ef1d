"""What the compiler knows of operators besides their lowerings: how PyTorch runs and traces them.

Kernels, shape rules and derivatives of Torchstone's own operators; decompositions; what stands in for
kernels that cannot be traced; what eager PyTorch refuses; what has no effect. Each module adds its part
to the operators' records when it is imported.
"""

from __future__ import annotations

import pkgutil

from ...lowering import import_parts
from ...lowering.registry import registry

__all__ = ["registry"]

import_parts(__name__, sorted(module.name for module in pkgutil.iter_modules(__path__)))
