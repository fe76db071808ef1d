"""Whether nested values are the same, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy
import torch


def same(one: Any, other: Any) -> bool:
    """Whether two values are of one type and have the same bits, strides included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        if (one.dtype, one.shape) != (other.dtype, other.shape) or one.stride() != other.stride():
            return False
        raw = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
        return torch.equal(*raw)
    if isinstance(one, numpy.ndarray):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes() and one.shape == other.shape
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return repr(one) == repr(other) if isinstance(one, float | complex | str) else bool(one == other)
