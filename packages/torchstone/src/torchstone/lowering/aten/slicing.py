"""Parts of a tensor: slice, select, split, unbind, narrow, diagonal, unfold.

Not here: positions given by a tensor (``gathering``), views of raw storage
(``strided``), functional updates of a part (``view_updates``).
"""

from __future__ import annotations

from ... import hlo
from ...dtypes import COPYABLE, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, is_empty
from ..registry import Spec, aten_overloads, lowers

aten = namespace("aten")


def first_index(start: hlo.Dim | None, size: hlo.Dim) -> hlo.Dim:
    """Return a slice's start on an axis of ``size``: negative counts from the end; then it is clamped."""
    return 0 if start is None else hlo.at_most(hlo.at_least(from_front(start, size), 0), size)


def from_front(index: hlo.Dim, size: hlo.Dim) -> hlo.Dim:
    """Convert an index that may be negative, counting from the end of an axis of ``size``."""
    return index + size if hlo.is_negative(index) else index


def extent(count: hlo.Dim, step: int) -> hlo.Dim:
    """Return the length of an axis that ``count`` elements, ``step`` apart, take up."""
    return hlo.at_least((count - 1) * step + 1, 0)


# The shape of PyTorch's result gives the end of the slice.
@lowers(aten.slice.Tensor, aten.slice_copy.Tensor, dtypes=COPYABLE, ignores=("end",))
def slice_(self: Value, dim: int = 0, start: hlo.Dim | None = None, step: int = 1, *, out: Spec) -> Value:
    """``start : end : step`` along one axis."""
    axis = axis_of(dim, self.rank)
    first = first_index(start, self.shape[axis])
    part = hlo.slice_axis(self, axis, first, first + extent(out.shape[axis], step), step)
    return hlo.respelled(part, out.shape)


def selected(self: Value, axis: int, index: hlo.Dim) -> Value:
    """The part at one index of an axis, without that axis."""
    index = from_front(index, self.shape[axis])
    return hlo.squeeze(hlo.slice_axis(self, axis, index, index + 1), [axis])


@lowers(aten.select.int, aten.select_copy.int, dtypes=COPYABLE)
def select(self: Value, dim: int, index: hlo.Dim) -> Value:
    """The part at one index of an axis."""
    return selected(self, axis_of(dim, self.rank), index)


@lowers(aten.narrow_copy.default, dtypes=COPYABLE)
def narrow_copy(self: Value, dim: int, start: hlo.Dim, length: hlo.Dim) -> Value:
    """``length`` elements of an axis, beginning at ``start``."""
    axis = axis_of(dim, self.rank)
    first = first_index(start, self.shape[axis])
    return hlo.slice_axis(self, axis, first, first + length)


# The shapes of PyTorch's results give the sizes of the parts.
@lowers(
    aten.split.Tensor,
    aten.split_copy.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_split_with_sizes.default,
    dtypes=COPYABLE,
    ignores=("split_size", "split_sizes"),
)
def split(self: Value, dim: int = 0, *, out: tuple[Spec, ...]) -> list[Value]:
    """Consecutive parts of an axis."""
    axis = axis_of(dim, self.rank)
    parts, start = [], 0
    for part in out:
        stop = start + part.shape[axis]
        parts.append(hlo.slice_axis(self, axis, start, stop))
        start = stop
    return parts


@lowers(aten.unbind.int, aten.unbind_copy.int, dtypes=COPYABLE)
def unbind(self: Value, dim: int = 0) -> list[Value]:
    """One tensor per index of a (static) axis."""
    axis = axis_of(dim, self.rank)
    if not self.shape[axis]:
        return []

    def kernel(x: Value) -> list[Value]:
        return [selected(x, axis, index) for index in range(x.shape[axis])]

    return hlo.composite("torchstone.unbind", [self], kernel, {"axis": axis})


def diagonal_indices(count: hlo.Dim, offset: int) -> Value:
    """Row and column of each element of a diagonal: int64 ``(count, 2)``."""
    steps = hlo.iota((count, 2), 0, INT64)
    return steps + hlo.broadcast_to(hlo.constant([max(-offset, 0), max(offset, 0)], INT64), steps.shape)


@lowers(aten.diagonal.default, aten.diagonal_copy.default, dtypes=COPYABLE)
def diagonal(self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1, *, out: Spec) -> Value:
    """The diagonal of two axes as a new last axis."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    axes = [axis_of(dim1, self.rank), axis_of(dim2, self.rank)]
    return hlo.gather(
        self,
        diagonal_indices(out.shape[-1], offset),
        offset_dims=list(range(self.rank - 2)),
        collapsed=sorted(axes),
        start_index_map=axes,
        index_vector_dim=1,
        slice_sizes=[1 if axis in axes else dim for axis, dim in enumerate(self.shape)],
    )


def window_indices(count: hlo.Dim, size: int, step: int) -> Value:
    """The positions that each of ``count`` windows covers: int64 ``(count, size)``."""
    return hlo.iota((count, size), 0, INT64) * step + hlo.iota((count, size), 1, INT64)


@lowers(aten.unfold.default, *aten_overloads(["unfold_copy"]), dtypes=COPYABLE)
def unfold(self: Value, dimension: int, size: int, step: int, out: Spec) -> Value:
    """All windows of ``size`` elements along an axis, ``step`` apart, with a new last axis for the window."""
    if not self.rank:
        return hlo.reshape(self, (size,)) if size else hlo.full((0,), 0, self.dtype)
    axis = axis_of(dimension, self.rank)
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    windows = hlo.take(self, window_indices(out.shape[axis], size, step), axis)
    return hlo.move_axis(windows, axis + 1, -1)
