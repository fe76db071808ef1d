"""Capture rules: functions that replace callables that ``torch.export`` cannot trace.

:func:`capture_rule` registers a rule. Inside :func:`replacing`, all rules are in
force. If the size of a result depends on values, a rule pads it to a size that
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

# These modules register their rules when they are imported.
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
