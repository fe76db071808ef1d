"""Checks of numbers, sizes and words in calls that can be traced although kernels refuse them.

They are like the checks in :mod:`.arguments`: each returns PyTorch's error message, or None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...torch_internals.operators import namespace
from .declaring import declare

aten = namespace("aten")
Arguments = Mapping[str, Any]


def axis_of_scalar(given: Arguments) -> str | None:
    """Check ``dim`` for a tensor without dimensions, which PyTorch's shape functions do not."""
    dim = given["dim"]
    if given["self"].dim() or dim in (0, -1):
        return None
    return f"Dimension out of range (expected to be in range of [-1, 0], but got {dim})"


def _reduced_scalar(name: str) -> Callable[[Arguments], str | None]:
    def check(given: Arguments) -> str | None:
        """Check ``dim`` for a tensor without dimensions."""
        if axis_of_scalar(given) is None:
            return None
        return f"{name}(): Expected reduction dim -1 or 0 for scalar but got {given['dim']}"

    return check


def _finite_range(given: Arguments) -> str | None:
    low, high = given["min"], given["max"]
    if low == high or (math.isfinite(low) and math.isfinite(high)) or 0 in given["self"].shape:
        return None
    return f"torch.histc: range of [{low:g}, {high:g}] is not finite"


def _side(given: Arguments) -> str | None:
    side = given["side"]
    if side in (None, "left", "right"):
        return None
    return f"torch.searchsorted(): side can only be 'left' or 'right' but got {side}"


def _ctc_lengths(given: Arguments) -> str | None:
    """Check lengths that are lists, as in aten/src/ATen/native/LossCTC.cpp; tensors have rules for values."""
    steps, targets = given["log_probs"].shape[0], given["targets"].shape
    inputs, wanted = given["input_lengths"], given["target_lengths"]
    numbers = [*inputs, *wanted, steps, *targets] if isinstance(inputs, (list, tuple)) else [None]
    if not all(isinstance(one, int) for one in numbers):
        return None
    during = "(while checking arguments for ctc_loss_allocate_outputs)"
    for name, lengths in (("input_lengths", inputs), ("target_lengths", wanted)):
        for length in lengths:
            if length < 0:
                return f"Expected {name} to have value at least 0, but got value {length} {during}"
    longest = max(inputs, default=0)
    if longest > steps:
        return f"Expected input_lengths to have value at most {steps}, but got value {longest} {during}"
    many, axis = (sum(wanted), 0) if len(targets) == 1 else (max(wanted, default=0), 1)
    if targets[axis] == many or (axis == 1 and targets[axis] > many):
        return None
    size = f"size at least {many}" if axis else f"size {many}"
    return (
        f"Expected tensor to have {size} at dimension {axis}, but got size {targets[axis]} for argument"
        f" #2 'targets' {during}"
    )


declare(aten.sort, aten.argsort, arguments=axis_of_scalar)
declare(aten.softmax.int, aten.log_softmax.int, aten._softmax, aten._log_softmax, arguments=axis_of_scalar)
declare(aten.cummax, arguments=_reduced_scalar("cummax"))
declare(aten.cummin, arguments=_reduced_scalar("cummin"))
declare(aten.histc, arguments=_finite_range)
declare(aten.searchsorted, arguments=_side)
declare(aten._ctc_loss, arguments=_ctc_lengths)
