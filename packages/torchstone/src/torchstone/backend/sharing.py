"""Checks whether inputs that a compiled function writes share memory with other inputs.

When AOTAutograd traces a function, it looks at which inputs share memory. It then assumes that this stays the
same, and its guards do not check it. This module checks it in each call.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from ..errors import FallbackRefused, FallbackWarning
from ..torch_internals.tensors import is_traceable_wrapper_subclass, storage_identity

Function = Callable[..., Any]

_address: Callable[[torch.Tensor], int] = torch.Tensor.data_ptr


class HeedingMemory:
    """A function that calls ``compiled``, or ``eager`` if inputs share memory differently than ``inputs`` do.

    ``written`` has the positions of the inputs that the function writes, or is None if the compiled function
    takes one input in place of several that share memory. ``symbolic``: some sizes change from call to call.
    Without ``fallback``, a call that would run ``eager`` raises :class:`FallbackRefused`. A call first
    compares addresses with those of the last checked call, which is fast. Safe to call from several threads.
    """

    def __init__(
        self,
        compiled: Function,
        eager: Function,
        inputs: Sequence[Any],
        written: Collection[int] | None,
        *,
        symbolic: bool,
        fallback: bool,
    ) -> None:
        self._compiled, self._eager = compiled, eager
        self._symbolic, self._fallback = symbolic, fallback
        self._tensors = [position for position, one in enumerate(inputs) if _has_memory(one)]
        self._only_tensors = len(self._tensors) == len(inputs)
        self._written = [one for one in self._tensors if written is None or one in written]
        self._independent = written is not None
        self._shared = [] if symbolic else self._sharing(inputs)
        self._known: list[Any] = []

    def __call__(self, *inputs: Any) -> Any:
        tensors = inputs if self._only_tensors else [inputs[position] for position in self._tensors]
        places: list[Any] = list(map(_address, tensors))
        if self._symbolic:
            places += [(one.shape, one.stride()) for one in tensors]
        if places != self._known:
            if not self._is_as_compiled(inputs):
                return self._otherwise(inputs)
            self._known = places
        return self._compiled(*inputs)

    def _is_as_compiled(self, inputs: Sequence[Any]) -> bool:
        if self._shared and self._sharing(inputs) == self._shared:
            return True
        return self._independent and not self._overlap(inputs)

    def _sharing(self, inputs: Sequence[Any]) -> list[list[tuple[int, Any, int]]]:
        """Return the groups of inputs that share a storage, if an input of the group is written.

        Each input is given by its position, its offset and the size of the storage in bytes.
        """
        storages: dict[int, list[tuple[int, Any, int]]] = {}
        for position in self._tensors:
            storage = inputs[position].untyped_storage()
            found = position, inputs[position].storage_offset(), storage.nbytes()
            storages.setdefault(storage_identity(storage), []).append(found)
        return [
            members
            for members in storages.values()
            if len(members) > 1 and any(position in self._written for position, *_ in members)
        ]

    def _overlap(self, inputs: Sequence[Any]) -> bool:
        """Whether the memory range of a written input, first to last element, overlaps that of another."""
        spans = sorted(
            (inputs[position].data_ptr(), _extent(inputs[position]), position in self._written)
            for position in self._tensors
        )
        end_of_any = end_of_written = 0
        for start, extent, is_written in spans:
            if extent and start < (end_of_any if is_written else end_of_written):
                return True
            end_of_any = max(end_of_any, start + extent)
            end_of_written = max(end_of_written, start + extent if is_written else 0)
        return False

    def _otherwise(self, inputs: Sequence[Any]) -> Any:
        what = (
            "a compiled function writes an input that shares memory with another one, in another way than in "
            "the call that it was compiled for"
        )
        if not self._fallback:
            raise FallbackRefused(
                f"{what}; this call would run in eager PyTorch",
                hint='pass copies, or allow it with options={"fallback": True}',
            )
        warnings.warn(f"{what}: such calls run in eager PyTorch", FallbackWarning, stacklevel=3)
        return self._eager(*inputs)


def _has_memory(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and not value.is_nested
        and not is_traceable_wrapper_subclass(value)
    )


def _extent(tensor: torch.Tensor) -> int:
    """Return the number of bytes from a tensor's first element to its last, both included."""
    if tensor.is_contiguous():
        return tensor.nbytes
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    return (1 + sum((size - 1) * stride for size, stride in steps)) * tensor.itemsize
