"""How a tensor lies in its storage: reading a view out of a flat buffer, and writing one back into it.

A storage is one flat array of elements of one dtype. Sizes, strides and offsets count elements of the
view's dtype. Most views can be read and written with slices. Only overlapping and interleaved views, which
``as_strided`` can make, need a gather or a scatter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from .. import hlo
from ..dtypes import BOOL, UINT8, DType
from ..hlo import Value
from ..lowering.aten.strided import addresses
from ..lowering.common import flatten


@dataclass(frozen=True, slots=True)
class Layout:
    """The position of a view's elements in its storage."""

    dtype: DType
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    @property
    def numel(self) -> int:
        return math.prod(self.size)

    @property
    def end(self) -> int:
        """The address after the view's last element; 0 for an empty view, whatever its offset."""
        if not self.numel:
            return 0
        return self.offset + 1 + sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))

    @property
    def order(self) -> list[int]:
        """The axes whose size is not 1, from the largest stride to the smallest."""
        axes = [axis for axis, n in enumerate(self.size) if n != 1]
        return sorted(axes, key=lambda axis: -self.stride[axis])

    @property
    def repeats(self) -> bool:
        """Whether an axis of stride 0 visits the same elements more than once."""
        return any(n > 1 and step == 0 for n, step in zip(self.size, self.stride, strict=True))

    @property
    def overlaps(self) -> bool:
        """Whether two elements of the view share an address."""
        if self.numel < 2 or _nested(self) is not None:
            return False
        span = self.end - self.offset
        if self.repeats or self.numel > span:
            return True
        places = numpy.zeros((), numpy.int64)
        for n, step in zip(self.size, self.stride, strict=True):
            places = places[..., None] + numpy.arange(n) * step
        taken = numpy.zeros(span, numpy.bool_)
        taken[places.reshape(-1)] = True
        return int(taken.sum()) < self.numel

    @property
    def is_dense(self) -> bool:
        """Whether the view covers a range of memory without gaps, each element once."""
        return not self.numel or (self.end - self.offset == self.numel and _nested(self) is not None)

    def covers(self, nbytes: int) -> bool:
        """Whether the view is all of a storage of ``nbytes``."""
        return self.offset == 0 and self.is_dense and self.numel * self.dtype.itemsize == nbytes

    @property
    def in_bytes(self) -> Layout:
        """The layout of the same memory as bytes, with the bytes of each element along a new last axis."""
        each = self.dtype.itemsize
        stride = (*(step * each for step in self.stride), 1)
        return Layout(UINT8, (*self.size, each), stride, self.offset * each)


def _nested(layout: Layout) -> list[tuple[int, int]] | None:
    """Return ``(size, stride)`` of the axes in ``order`` if each steps over the whole next one, else None."""
    axes = [(layout.size[axis], layout.stride[axis]) for axis in layout.order]
    for (_, outer), (inner_size, inner) in itertools.pairwise(axes):
        if inner == 0 or outer % inner or inner_size * inner > outer:
            return None
    return None if axes and axes[-1][1] == 0 else axes


def reinterpreted(flat: Value, dtype: DType) -> Value:
    """Return the same bytes as a flat array of another dtype."""
    if flat.dtype is dtype:
        return flat
    if flat.dtype.is_complex:
        parts = [hlo.expand_dims(part, [1]) for part in (hlo.real(flat), hlo.imag(flat))]
        return reinterpreted(flatten(hlo.concatenate(parts, 1)), dtype)
    if dtype.is_complex:
        pairs = hlo.reshape(reinterpreted(flat, dtype.real), (nbytes_of(flat) // dtype.itemsize, 2))
        return hlo.complex_(*(flatten(hlo.slice_axis(pairs, 1, part, part + 1)) for part in (0, 1)))
    if flat.dtype is BOOL:
        return reinterpreted(hlo.convert(flat, UINT8), dtype)
    if dtype is BOOL:
        return hlo.ne(reinterpreted(flat, UINT8), 0)
    if dtype.bits > flat.dtype.bits:
        parts_of_one = dtype.bits // flat.dtype.bits
        return hlo.bitcast(hlo.reshape(flat, (flat.shape[0] // parts_of_one, parts_of_one)), dtype)
    return flatten(hlo.bitcast(flat, dtype))


def in_bytes(values: Value) -> Value:
    """Return an array as bytes, with the bytes of each element along a new last axis."""
    return hlo.reshape(reinterpreted(flatten(values), UINT8), (*values.shape, values.dtype.itemsize))


def nbytes_of(flat: Value) -> int:
    """Return the number of bytes of a flat array."""
    (count,) = flat.shape
    assert isinstance(count, int)
    return count * flat.dtype.itemsize


def read(flat: Value, layout: Layout) -> Value:
    """Return the view that ``layout`` describes of ``flat``, which has the view's dtype."""
    if not layout.numel:
        return hlo.full(layout.size, 0, layout.dtype)
    if layout.repeats:
        once = tuple(1 if step == 0 else n for n, step in zip(layout.size, layout.stride, strict=True))
        return hlo.broadcast_to(
            read(flat, Layout(layout.dtype, once, layout.stride, layout.offset)), layout.size
        )
    axes = _nested(layout)
    if axes is None:
        return hlo.take(flat, addresses(layout.size, layout.stride, layout.offset), 0)
    block = _region(flat, layout, axes)
    return _ordered(_inner(block, axes), layout)


def write(flat: Value, layout: Layout, values: Value) -> Value:
    """Return ``flat`` with the view's elements replaced by ``values`` of the view's shape and dtype."""
    if not layout.numel:
        return flat
    axes = _nested(layout)
    if axes is None:
        order = _written_order(layout)
        size, stride = ([numbers[axis] for axis in order] for numbers in (layout.size, layout.stride))
        where = flatten(addresses(size, stride, layout.offset))
        return hlo.put(flat, where, flatten(hlo.transpose(values, order)), 0, lambda _, new: new)
    moved = hlo.reshape(hlo.transpose(values, _all_axes(layout)), [n for n, _ in axes])
    if not axes or layout.is_dense:
        return _placed(flat, flatten(moved), layout.offset)
    region = _region(flat, layout, axes)
    return _replaced(flat, flatten(_updated(region, moved, axes)), layout.offset)


def _written_order(layout: Layout) -> list[int]:
    """Return the axes, outermost first, in the order in which PyTorch writes them on the CPU.

    The order matters where elements of the view share an address: the element that is written last wins.
    """
    return sorted(range(len(layout.size)), key=lambda axis: (-layout.stride[axis], -layout.size[axis]))


def spread(values: Value, layout: Layout) -> Value:
    """Return a new flat array that holds ``values`` as the view, ends with it, and is zero elsewhere."""
    if layout.covers(layout.numel):
        return flatten(hlo.transpose(values, _all_axes(layout)))
    return write(hlo.full((layout.end,), 0, layout.dtype), layout, values)


def _all_axes(layout: Layout) -> list[int]:
    """Return all axes by descending stride.

    Axes of size 1 keep their places if the others are in that order already; otherwise they come first.
    """
    if layout.order == sorted(layout.order):
        return list(range(len(layout.size)))
    return [*(axis for axis, n in enumerate(layout.size) if n == 1), *layout.order]


def _ordered(block: Value, layout: Layout) -> Value:
    """Return a block whose axes are in memory order in the view's shape and order of axes."""
    axes = _all_axes(layout)
    full = hlo.reshape(block, [layout.size[axis] for axis in axes])
    return hlo.transpose(full, [axes.index(axis) for axis in range(len(axes))])


def _region(flat: Value, layout: Layout, axes: Sequence[tuple[int, int]]) -> Value:
    """Return the part of ``flat`` that the outermost axis steps through, padded with zeros past its end."""
    total = axes[0][0] * axes[0][1] if axes else 1
    (length,) = flat.shape
    assert isinstance(length, int)
    missing = layout.offset + total - length
    if missing > 0:
        flat = hlo.pad_axis(flat, 0, 0, 0, missing)
    return hlo.slice_axis(flat, 0, layout.offset, layout.offset + total)


def _inner(block: Value, axes: Sequence[tuple[int, int]]) -> Value:
    """Return a region's elements: split off one axis after another, cut to the extent of the next."""
    for position, (size, stride) in enumerate(axes):
        block = hlo.reshape(block, (*block.shape[:position], size, stride))
        extent = _extent(axes, position)
        block = hlo.slice_axis(block, position + 1, 0, extent)
    return hlo.reshape(block, [size for size, _ in axes])


def _extent(axes: Sequence[tuple[int, int]], position: int) -> int:
    """Return the number of elements that the axes after ``position`` step through."""
    return axes[position + 1][0] * axes[position + 1][1] if position + 1 < len(axes) else 1


def _updated(block: Value, values: Value, axes: Sequence[tuple[int, int]], position: int = 0) -> Value:
    """Return a region (with any leading axes) with its elements replaced: the inverse of :func:`_inner`."""
    if position == len(axes):
        return hlo.reshape(values, block.shape)
    size, stride = axes[position]
    lead = block.shape[:position]
    rows = hlo.reshape(block, (*lead, size, stride))
    extent = _extent(axes, position)
    inner = _updated(hlo.slice_axis(rows, position + 1, 0, extent), values, axes, position + 1)
    start = [hlo.dim_scalar(0)] * rows.rank
    return hlo.reshape(hlo.dynamic_update_slice(rows, inner, start), block.shape)


def _placed(flat: Value, values: Value, offset: int) -> Value:
    if values.shape == flat.shape:
        return values
    return hlo.dynamic_update_slice(flat, values, [hlo.dim_scalar(offset)])


def _replaced(flat: Value, region: Value, offset: int) -> Value:
    """Return ``flat`` with a region put back; the part of the region past the end of ``flat`` is dropped."""
    (length,), (size,) = flat.shape, region.shape
    assert isinstance(length, int)
    assert isinstance(size, int)
    return _placed(flat, hlo.slice_axis(region, 0, 0, min(size, length - offset)), offset)
