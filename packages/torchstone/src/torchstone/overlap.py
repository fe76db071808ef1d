"""Whether arrays share elements of memory: NumPy arrays and torch tensors, in any combination.

Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

_MAX_WORK = 100_000
"""Limit for NumPy's exact search; memory that it cannot tell apart within the limit counts as shared."""


@dataclass(frozen=True)
class _Memory:
    """Elements in the memory of one device, as NumPy's array interface describes them."""

    device: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "data": (self.address, True),
            "shape": self.shape,
            "strides": self.strides,
            "typestr": f"|V{self.itemsize}",
        }


def overlap(first: Any, second: Any) -> bool:
    """Whether an element of ``first`` and one of ``second`` lie in the same memory."""
    one, other = _memory(first), _memory(second)
    if one is None or other is None or one.device != other.device:
        return False
    shares_memory: Any = numpy.shares_memory  # its stub allows only two values of max_work
    try:
        return bool(shares_memory(numpy.asarray(one), numpy.asarray(other), max_work=_MAX_WORK))
    except numpy.exceptions.TooHardError:
        return True


def repeats_elements(array: Any) -> bool:
    """Whether ``array`` was expanded, so that several of its elements are the same memory."""
    memory = _memory(array)
    return memory is not None and any(
        size > 1 and stride == 0 for size, stride in zip(memory.shape, memory.strides, strict=True)
    )


def _memory(array: Any) -> _Memory | None:
    """Return where the elements of ``array`` lie; None if it has none, or does not give their address."""
    if isinstance(array, (numpy.ndarray, numpy.generic)):
        address = array.__array_interface__["data"][0]
        return _Memory("cpu", address, array.shape, array.strides, array.itemsize) if array.size else None
    try:
        address, itemsize = array.data_ptr(), array.element_size()
        strides = tuple(stride * itemsize for stride in array.stride())
    except (AttributeError, RuntimeError):  # not a torch tensor, or one without memory of its own
        return None
    return _Memory(str(array.device), address, tuple(array.shape), strides, itemsize) if address else None
