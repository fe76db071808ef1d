"""The PyTorch calls for each operator name of the inventory, one file per group of families.

``CALLS`` has them by family and name. Not here: running them (:mod:`..operator_runs`).
"""

from __future__ import annotations

from . import arrays, elementwise, formats, layers
from .call import CALLS, Bound, Call, Operator

__all__ = ["CALLS", "Bound", "Call", "Operator"]
