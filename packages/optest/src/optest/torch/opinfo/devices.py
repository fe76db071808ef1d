"""Checks of a device beyond values: views share memory, memory is released, copies change nothing.

Each check is a function that wraps an operator and runs on the device of its operands. On the CPU there
is no memory to count and no copy to another device, so eager PyTorch's answer there is the right one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...errors import MemoryKept, ValuesChanged
from ..internals import tree_map_only
from .calls import copied, same_bits
from .samples import tensors_of


def _called(function: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
    """Call ``function``; move the split points of ``tensor_split`` to the CPU, where PyTorch needs them."""
    if function is torch.tensor_split:
        args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
    return function(first, *args, **kwargs)


@dataclass(frozen=True)
class Held:
    """A call whose results are kept while the same call is repeated and its results are dropped.

    Raises :class:`MemoryKept` if the repeated call leaves more of a device's memory in use than before.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kept = _called(self.function, *args, **kwargs)
        devices = {one.device for one in (*tensors_of((args, kwargs)), *tensors_of(kept))}
        _called(self.function, *args, **kwargs)  # the device now holds what it keeps for its own use
        before = {one: _allocated(one) for one in devices}
        _called(self.function, *args, **kwargs)
        for one, count in before.items():
            more = _allocated(one) - count
            if more > 0:
                raise MemoryKept(f"{more} bytes on {one} are in use after the results of a call were dropped")
        return kept


def _allocated(device: torch.device) -> int:
    """Return the number of bytes that the device reports as in use; 0 if it reports none."""
    ask = getattr(getattr(torch, device.type, None), "memory_allocated", None)
    return 0 if ask is None else int(ask(device))


@dataclass(frozen=True)
class WrittenThrough:
    """A call of a view operator; returns its results and operand after writing numbers into each result."""

    function: Callable[..., Any]

    def __call__(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        held = tree_map_only(torch.Tensor, copied, first)
        found = _called(self.function, held, *args, **kwargs)
        for number, one in enumerate(tensors_of(found), 1):
            one.copy_(torch.arange(one.numel(), device=one.device).view(one.shape) + number)
        return found, held


@dataclass(frozen=True)
class Transferred:
    """A call on operands that were copied to the CPU and back.

    Raises :class:`ValuesChanged` if their bits changed on the way.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        moved_args, moved_kwargs = tree_map_only(torch.Tensor, _there_and_back, (args, kwargs))
        return _called(self.function, *moved_args, **moved_kwargs)


def _there_and_back(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the CPU and back with ``to``, then write it again from the CPU with ``copy_``."""
    there = tensor.to("cpu", copy=True)
    back = there.to(tensor.device, copy=True)
    back.copy_(there, non_blocking=True)
    if not same_bits(back, there):
        raise ValuesChanged(f"a tensor of {tensor.dtype} and shape {list(tensor.shape)} changes on its way")
    return back
