"""What a device is asked beside values: views share memory, memory is given back, copies change nothing.

Functions around an operator that run where its operands are. On the CPU there is nothing to count or to copy
between, and eager PyTorch's answer there is the right one.
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
    """The call; PyTorch reads the places where ``tensor_split`` splits on the CPU, whatever it splits."""
    if function is torch.tensor_split:
        args, kwargs = tree_map_only(torch.Tensor, torch.Tensor.cpu, (args, kwargs))
    return function(first, *args, **kwargs)


@dataclass(frozen=True)
class Held:
    """The results of a call that are kept while the same call is made again, and its results are dropped.

    Raises :class:`MemoryKept` where the device then counts more memory in use than before.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kept = _called(self.function, *args, **kwargs)
        devices = {one.device for one in (*tensors_of((args, kwargs)), *tensors_of(kept))}
        _called(self.function, *args, **kwargs)  # what a device keeps for its own use is there from now on
        before = {one: _allocated(one) for one in devices}
        _called(self.function, *args, **kwargs)
        for one, count in before.items():
            more = _allocated(one) - count
            if more > 0:
                raise MemoryKept(f"{more} bytes on {one} are in use after the results of a call were dropped")
        return kept


def _allocated(device: torch.device) -> int:
    """Bytes that the device says are in use; 0 where it does not say."""
    ask = getattr(getattr(torch, device.type, None), "memory_allocated", None)
    return 0 if ask is None else int(ask(device))


@dataclass(frozen=True)
class WrittenThrough:
    """The results of a view, and its operand, after other numbers were written into each of the results."""

    function: Callable[..., Any]

    def __call__(self, first: Any, *args: Any, **kwargs: Any) -> Any:
        held = tree_map_only(torch.Tensor, copied, first)
        found = _called(self.function, held, *args, **kwargs)
        for number, one in enumerate(tensors_of(found), 1):
            one.copy_(torch.arange(one.numel(), device=one.device).view(one.shape) + number)
        return found, held


@dataclass(frozen=True)
class Transferred:
    """The results of a call on operands that went to the CPU and came back.

    Raises :class:`ValuesChanged` where they come back as something else.
    """

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        moved_args, moved_kwargs = tree_map_only(torch.Tensor, _there_and_back, (args, kwargs))
        return _called(self.function, *moved_args, **moved_kwargs)


def _there_and_back(tensor: torch.Tensor) -> torch.Tensor:
    """A copy by ``to`` in both directions, which ``copy_`` then writes again from the CPU's."""
    there = tensor.to("cpu", copy=True)
    back = there.to(tensor.device, copy=True)
    back.copy_(there, non_blocking=True)
    if not same_bits(back, there):
        raise ValuesChanged(f"a tensor of {tensor.dtype} and shape {list(tensor.shape)} changes on its way")
    return back
