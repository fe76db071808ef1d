"""Which calls compute each result element independently, and the error that rounding explains in each.

Such elements are judged relative to their own size: since nothing is summed, rounding cannot explain
an error that is large compared to the element. Not here: the rule itself (``optest.core.accuracy``,
``apiece``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...core.roundoff import Stages, stage_changes, unit_roundoff
from ..internals import overloads_seen
from ..tensors import to_array, to_tensor
from .calls import copied, evaluate
from .phases import Case
from .samples import widened

_UNTAGGED = (
    "_prelu_kernel", "_prelu_kernel_backward", "elu", "elu_backward", "glu", "hardsigmoid_backward",
    "hardswish_backward", "hardtanh_backward", "leaky_relu_backward", "log_sigmoid_backward",
    "log_sigmoid_forward", "mish_backward", "prelu", "rsub", "softplus_backward",
)  # fmt: skip
"""Elementwise operators that lack PyTorch's tag ``pointwise``, besides those named ``special_*``."""
_MOVING = (
    "_has_same_storage_numel", "_to_copy", "cat", "constant_pad_nd", "copy", "empty", "empty_like",
    "empty_strided", "fill", "flip", "full", "full_like", "gather", "index_select", "is_same_size",
    "new_empty", "new_empty_strided", "new_full", "new_zeros", "ones_like", "repeat", "roll", "scalar_tensor",
    "select_backward", "slice_backward", "stack", "tril", "triu", "zero", "zeros", "zeros_like",
)  # fmt: skip
"""Operators that only move or create elements, or only look at sizes."""
_RULE = Stages(1)


def is_elementwise(case: Case) -> bool:
    """Whether each operator that eager PyTorch calls here is elementwise, a view, or moves elements."""
    call = case.call.run.map(copied)
    try:
        with overloads_seen() as names:
            evaluate(call)
    except Exception:  # noqa: BLE001  # some operators refuse to be watched
        return False
    return all(map(_by_itself, names))


def _by_itself(name: str) -> bool:
    library, packet, overload = name.split(".")
    operator = getattr(getattr(getattr(torch.ops, library), packet), overload)
    plain = packet.removesuffix("_")
    known = plain in _UNTAGGED or plain in _MOVING or plain.startswith("special_")
    return known or operator.is_view or torch.Tag.pointwise in operator.tags


def bounds_of(case: Case, dtypes: Sequence[torch.dtype]) -> list[NDArray[Any]]:
    """Return, for each result, the largest error that one rounding of the operands or the result explains."""
    call = case.call.run.map(lambda one: widened(copied(one)), case.bound.function(wide=True))

    def found(operands: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        tensors = [
            to_tensor(one, "cpu") if like.is_floating_point() or like.is_complex() else copied(like)
            for one, like in zip(operands, call.operands, strict=True)
        ]
        return [to_array(one) for one in evaluate(call, tensors)]

    operands = [to_array(one) for one in call.operands]
    changes = stage_changes(found, operands, [0.0] * len(operands))
    truths = found(operands)
    units = [unit_roundoff(str(dtype).removeprefix("torch.")) for dtype in map(_real, dtypes)]
    bounds = []
    for truth, change, unit, dtype in zip(truths, changes, units, dtypes, strict=True):
        bound = np.nan_to_num(_RULE.count * unit * (np.abs(truth) + change), nan=0.0, posinf=0.0)
        bounds.append(np.stack([bound, bound], -1) if dtype is torch.complex32 else bound)
    return bounds


def _real(dtype: torch.dtype) -> torch.dtype:
    return torch.float16 if dtype is torch.complex32 else dtype
