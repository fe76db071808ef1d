"""``as_strided``, ``resize`` and their relatives, which address a tensor's storage.

A value has no storage. A 1-d value of all elements between the tensor's first and
last element, in the order of their addresses, stands in for it. The strides come
from PyTorch's metadata.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import torch

from ... import hlo
from ...dtypes import COPYABLE, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import cast, flatten, is_empty
from ..registry import Spec, aten_overloads, lowers

aten = namespace("aten")


def addresses(size: Sequence[hlo.Dim], stride: Sequence[hlo.Dim], offset: hlo.Dim) -> Value:
    """Return the address of every element of a strided tensor: int64 of shape ``size``."""
    total = hlo.full(size, 0, INT64) + _number(offset, size)
    for axis, step in enumerate(stride):
        if not hlo.same_dim(size[axis], 1):
            total = total + hlo.iota(size, axis, INT64) * _number(step, size)
    return total


def _number(number: hlo.Dim, shape: Sequence[hlo.Dim]) -> Value:
    return hlo.broadcast_in_dim(hlo.dim_scalar(number), shape, [])


def _descending(fake: torch.Tensor) -> list[int]:
    """Return the axes in descending order of stride; ties keep their order.

    Axes of size 1 may be anywhere.
    """
    stride = fake.stride()
    return sorted(range(fake.dim()), key=lambda axis: -stride[axis])


def _is_dense(fake: torch.Tensor) -> bool:
    """True if the tensor is a permutation of a contiguous one, so that each address holds one element."""
    expected: Any = 1
    for axis in reversed(_descending(fake)):
        if hlo.same_dim(fake.shape[axis], 1):
            continue
        if not hlo.same_dim(fake.stride()[axis], expected):
            return False
        expected = expected * fake.shape[axis]
    return True


def _extent(fake: torch.Tensor) -> hlo.Dim:
    """Return the number of storage elements from the tensor's first to its last."""
    return 1 + sum((size - 1) * step for size, step in zip(fake.shape, fake.stride(), strict=True))


def _keep_new(_: Value, new: Value) -> Value:
    return new


def _at(storage: Value, where: Value, values: Value) -> Value:
    """Write ``values`` into ``storage`` at the addresses ``where``."""
    return hlo.put(storage, flatten(where), flatten(values), 0, _keep_new)


def to_storage(x: Value, fake: torch.Tensor) -> Value:
    """Return the 1-d storage that ``x`` covers, with zeros in its gaps."""
    if _is_dense(fake):
        return flatten(hlo.transpose(x, _descending(fake)))
    return _at(hlo.full((_extent(fake),), 0, x.dtype), addresses(x.shape, fake.stride(), 0), x)


def from_storage(storage: Value, fake: torch.Tensor) -> Value:
    """Read a tensor with the layout of ``fake`` from ``storage``: the inverse of :func:`to_storage`."""
    if _is_dense(fake):
        order = _descending(fake)
        ordered = hlo.reshape(storage, [fake.shape[axis] for axis in order])
        return hlo.transpose(ordered, [order.index(axis) for axis in range(fake.dim())])
    return hlo.take(storage, addresses(fake.shape, fake.stride(), 0), 0)


def _refuses_uncovered(arguments: Mapping[str, Any]) -> str | None:
    """Refuse reads beyond the operand: only its own part of the storage is known.

    If the answer depends on symbolic sizes, it becomes an assumption of the trace that reads are inside.
    """
    fake, size, stride = arguments["self"], arguments["size"], arguments["stride"]
    offset = _relative(fake, arguments["storage_offset"])
    if is_empty(size):
        return None
    extent = _extent(fake)
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    static = hlo.is_static((*size, *stride, offset, *fake.shape, *fake.stride()))
    try:
        inside = bool(offset >= 0) and bool(last < extent)
    except RuntimeError:  # sizes that depend on values
        inside = False
    if inside and not leaves_no_gaps(fake):
        inside = static and _is_covered(fake, size, stride, offset)
    if inside:
        return None
    operand = f"size {list(fake.shape)}, stride {list(fake.stride())}"
    return f"its operand ({operand}) covers only a part of what it reads; apply it to the whole tensor"


def leaves_no_gaps(fake: torch.Tensor) -> bool:
    """True if the tensor's elements leave no gaps in memory; several may share an address."""
    repeated = [axis for axis, step in enumerate(fake.stride()) if hlo.same_dim(step, 0)]
    return _is_dense(_without(fake, repeated))


def _without(fake: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
    for axis in reversed(axes):
        fake = fake.select(axis, 0)
    return fake


def _is_covered(fake: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int) -> bool:
    """True if each address that is read has an element of the tensor."""
    covered = numpy.zeros(_extent(fake), dtype=bool)
    covered[_addresses(fake.shape, fake.stride(), 0)] = True
    return bool(covered[_addresses(size, stride, offset)].all())


def _addresses(size: Sequence[int], stride: Sequence[int], offset: int) -> numpy.ndarray[Any, Any]:
    total = numpy.full(tuple(size), offset)
    for axis, (n, step) in enumerate(zip(size, stride, strict=True)):
        total += (numpy.arange(n) * step).reshape([-1 if i == axis else 1 for i in range(len(size))])
    return total


def _relative(fake: torch.Tensor, storage_offset: hlo.Dim | None) -> hlo.Dim:
    return 0 if storage_offset is None else storage_offset - fake.storage_offset()


@lowers(aten.as_strided.default, aten.as_strided_copy.default, dtypes=COPYABLE, refuses=_refuses_uncovered)
def as_strided(
    self: Value,
    size: list[hlo.Dim],
    stride: list[hlo.Dim],
    storage_offset: hlo.Dim | None,
    *,
    meta: dict[str, Any],
    out: Spec,
) -> Value:
    """Elements of the operand's storage at ``storage_offset + Σ index · stride``."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    fake = meta["self"]
    offset = _relative(fake, storage_offset)
    return hlo.take(to_storage(self, fake), addresses(size, stride, offset), 0)


@lowers(*aten_overloads(["as_strided_scatter"]), dtypes=COPYABLE, refuses=_refuses_uncovered)
def as_strided_scatter(
    self: Value,
    src: Value,
    size: list[hlo.Dim],
    stride: list[hlo.Dim],
    storage_offset: hlo.Dim | None,
    *,
    meta: dict[str, Any],
) -> Value:
    """``self`` with the elements that ``as_strided`` selects replaced by ``src``."""
    if is_empty(src.shape):
        return self
    fake = meta["self"]
    offset = _relative(fake, storage_offset)
    update = hlo.broadcast_to(cast(src, self.dtype), size)
    return from_storage(_at(to_storage(self, fake), addresses(size, stride, offset), update), fake)


def _refuses_resize(arguments: Mapping[str, Any]) -> str | None:
    fake, memory_format = arguments["self"], arguments.get("memory_format")
    if memory_format not in (None, torch.contiguous_format, torch.preserve_format):
        return f"resizing to {memory_format} is not supported; resize a contiguous tensor"
    if _is_dense(fake) or hlo.same_shape(fake.shape, arguments["size"]):
        return None
    return f"its operand has gaps in memory (stride {list(fake.stride())}); make it contiguous first"


# The shape of PyTorch's result gives the size.
@lowers(aten.resize.default, dtypes=COPYABLE, refuses=_refuses_resize, ignores=("size",))
def resize(self: Value, *, meta: dict[str, Any], out: Spec) -> Value:
    """Truncate the operand's storage or extend it with zeros (undefined in PyTorch), in another shape."""
    if hlo.same_shape(self.shape, out.shape):
        return self
    total = hlo.product(out.shape)
    storage = to_storage(self, meta["self"])
    if total > self.numel:
        storage = hlo.pad_axis(storage, 0, 0, 0, total - self.numel)
    return hlo.reshape(hlo.slice_axis(storage, 0, 0, total), out.shape)
