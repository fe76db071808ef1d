"""Capture rules: what is called instead of callables that ``torch.export`` cannot trace.

:func:`capture_rule` registers one; :func:`replacing` puts all of them in force for
a block. Where a result's size depends on values, a rule pads it to a size that
the user declares with :func:`bounds`. Results that are not dense tensors (sparse,
quantized and packed ones) are a :class:`StandIn` while a model is traced.

The rules for PyTorch's own callables are in the other modules of this package.
"""

from __future__ import annotations

from .registry import (
    RULES,
    Rules,
    StandIn,
    bound,
    bounds,
    capture_rule,
    declared_bounds,
    replacements,
    replacing,
    without_stand_ins,
)

# They register with the above.
from . import attention, batch_norm, collectives, losses, masked_updates, packed  # isort: skip
from . import quantized, sized_by_values, sparse, statistics, views  # isort: skip

__all__ = [
    "RULES",
    "Rules",
    "StandIn",
    "bound",
    "bounds",
    "capture_rule",
    "declared_bounds",
    "replacements",
    "replacing",
    "without_stand_ins",
]
