"""Where eager PyTorch runs into what the Limits of ``docs/backend.md`` say, so that values may differ.

Each limit is one sentence there. What is looked at is the eager run: its operators and their arguments.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.torch_internals import pytree

NOT_RESIZABLE = "Trying to resize storage that is not resizable"
"""What PyTorch says where a result is to grow."""
ZERO_DIVISOR = "ZeroDivisionError"
"""What PyTorch says where an integer is divided by zero; programs do so under ``config.check_values``."""
_CASTS = {"_to_copy": 0, "to": 0, "type_as": 0, "_copy_from": 0, "copy": 1, "copy_": 1}
"""Operators that change a dtype, and which of their tensors they read. In inference mode ``to`` is one."""
_SIGNS = {"signbit": 0, "copysign": 1}
"""Operators that look at the sign of a NaN, and which of their tensors they read for it."""
_VARIANCES = ("var", "std", "var_mean", "std_mean")
_CONVOLUTIONS = ("convolution", "conv1d", "conv2d")
_NARROW = (torch.float32, torch.float16, torch.bfloat16)


class Limits(TorchDispatchMode):
    """Inside, notes in ``found`` which limits an operator meets."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if name in _CASTS and isinstance(made, torch.Tensor) and not _holds(made.dtype, given[_CASTS[name]]):
            self.found.add("a float beyond an integer dtype")
        if name in _SIGNS and len(given) > _SIGNS[name] and bool(given[_SIGNS[name]].isnan().any()):
            self.found.add("the sign of a NaN")
        if name in _VARIANCES and given[0].dtype in _NARROW and _squares_overflow(given[0]):
            self.found.add("squares of deviations overflow")
        if name in _CONVOLUTIONS and len(args) > 4 and _pads(args[4]) and not _finite(given[1]):
            self.found.add("padding times an infinite weight")
        return made


def _holds(dtype: torch.dtype, source: torch.Tensor) -> bool:
    """Whether each float of ``source`` is a number of an integer ``dtype``; true for other pairs."""
    if dtype.is_floating_point or dtype.is_complex or dtype == torch.bool:
        return True
    if not source.is_floating_point():
        return True
    held = torch.iinfo(dtype)
    values = source.detach().double().trunc()
    return bool(((values >= held.min) & (values < held.max + 1)).all())


def _squares_overflow(values: torch.Tensor) -> bool:
    finite = values.detach().double().nan_to_num(0.0, 0.0, 0.0)
    return bool(finite.numel() and finite.abs().max() ** 2 > torch.finfo(torch.float32).max)


def _pads(padding: Any) -> bool:
    return padding == "same" or (isinstance(padding, (list, tuple)) and any(padding))


def _finite(values: torch.Tensor) -> bool:
    return bool(values.detach().isfinite().all())
