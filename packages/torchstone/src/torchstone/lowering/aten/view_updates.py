"""Functional updates through a view, and the backward operators of views.

Not here: updates of raw storage (``strided``), updates at positions given by
a tensor (``scattering``).
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import COPYABLE, FLOAT8_E8M0FNU
from ...errors import LoweringBug
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import axis_of, cast, is_empty
from ..promotion import opmath
from ..registry import Spec, lowers
from .slicing import diagonal_indices, extent, first_index, from_front, window_indices

aten = namespace("aten")


def _resized(shape: hlo.Shape, axis: int, size: hlo.Dim) -> list[hlo.Dim]:
    return [size if i == axis else dim for i, dim in enumerate(shape)]


def _widened(grad: Value, shape: Sequence[hlo.Dim]) -> Value:
    """Broadcast a gradient to the view's ``shape``: it may have fewer axes, and axes of size 1."""
    if grad.rank == len(shape) and not any(hlo.same_dim(size, 1) for size in grad.shape):
        return grad  # the same symbolic sizes may be spelled differently
    return hlo.broadcast_to(grad, shape)


def _count(src: Value, axis: int, size: hlo.Dim, first: hlo.Dim, end: hlo.Dim | None, step: int) -> hlo.Dim:
    """Return the number of elements of an axis that ``src`` replaces."""
    if isinstance(size, int) and isinstance(first, int) and (end is None or isinstance(end, int)):
        limit = size if end is None else first_index(end, size)
        return max(limit - first + step - 1, 0) // step
    limit = size if end is None else first_index(end, size)
    count = hlo.at_least(limit - first + step - 1, 0) // step
    if not hlo.assume_same(src.shape[axis], count):
        raise LoweringBug(f"{src!r} does not fit a slice of {count} along {axis}")
    return src.shape[axis]


def _spread(x: Value, axis: int, first: hlo.Dim, step: int, size: hlo.Dim) -> Value:
    """Put ``x`` at ``first``, ``first + step``, … of an axis of ``size``, with zeros elsewhere."""
    low, high, interior = [0] * x.rank, [0] * x.rank, [0] * x.rank
    after = size - first - extent(x.shape[axis], step)
    low[axis], high[axis], interior[axis] = first, after, step - 1
    return hlo.respelled(hlo.pad(x, 0, low, high, interior), _resized(x.shape, axis, size))


@lowers(aten.slice_scatter.default, dtypes=COPYABLE)
def slice_scatter(
    self: Value,
    src: Value,
    dim: int = 0,
    start: hlo.Dim | None = None,
    end: hlo.Dim | None = None,
    step: int = 1,
) -> Value:
    """``self`` with ``start : end : step`` of one axis replaced by ``src``."""
    axis = axis_of(dim, self.rank)
    size = self.shape[axis]
    first = first_index(start, size)
    count = _count(src, axis, size, first, end, step)
    if hlo.same_dim(count, 0):
        return self
    limit = first + extent(count, step)
    update = hlo.broadcast_to(cast(src, self.dtype), _resized(self.shape, axis, count))
    if step == 1:
        before, after = hlo.slice_axis(self, axis, 0, first), hlo.slice_axis(self, axis, limit, size)
        return hlo.concatenate([x for x in (before, update, after) if not is_empty(x.shape)] or [self], axis)
    position = hlo.index_of(self, axis)
    inside = (position >= first) & (position < limit) & hlo.eq(hlo.remainder(position - first, step), 0)
    return hlo.select(inside, _spread(update, axis, first, step, size), self)


@lowers(aten.slice_backward.default, dtypes=COPYABLE)
def slice_backward(
    grad_output: Value, input_sizes: list[hlo.Dim], dim: int, start: hlo.Dim, end: hlo.Dim, step: int
) -> Value:
    """Place the gradient of a slice in zeros of ``input_sizes``."""
    axis = axis_of(dim, len(input_sizes))
    size = input_sizes[axis]
    first = first_index(start, size)
    count = _count(grad_output, axis, size, first, end, step)
    grad = _widened(grad_output, _resized(tuple(input_sizes), axis, count))
    if is_empty(grad.shape):
        return hlo.full(input_sizes, 0, grad.dtype)
    return _spread(grad, axis, first, step, size)


@lowers(aten.select_scatter.default, dtypes=COPYABLE)
def select_scatter(self: Value, src: Value, dim: int, index: hlo.Dim) -> Value:
    """``self`` with one index of an axis replaced by ``src``."""
    axis = axis_of(dim, self.rank)
    update = hlo.expand_dims(cast(src, self.dtype), [axis])
    index = from_front(index, self.shape[axis])
    starts = [hlo.dim_scalar(index if i == axis else 0) for i in range(self.rank)]
    return hlo.dynamic_update_slice(self, update, starts)


@lowers(aten.select_backward.default, dtypes=COPYABLE)
def select_backward(grad_output: Value, input_sizes: list[hlo.Dim], dim: int, index: hlo.Dim) -> Value:
    """Place the gradient at one index of an axis in zeros of ``input_sizes``."""
    axis = axis_of(dim, len(input_sizes))
    size = input_sizes[axis]
    grad = _widened(grad_output, [other for place, other in enumerate(input_sizes) if place != axis])
    return _spread(hlo.expand_dims(grad, [axis]), axis, from_front(index, size), 1, size)


def _diagonal(shape: Sequence[hlo.Dim], offset: int, dim1: int, dim2: int) -> list[hlo.Dim]:
    """Return the shape of a diagonal, which becomes the last axis."""
    first, second = axis_of(dim1, len(shape)), axis_of(dim2, len(shape))
    lead = [size for axis, size in enumerate(shape) if axis not in (first, second)]
    rows, columns = shape[first] + min(offset, 0), shape[second] - max(offset, 0)
    return [*lead, hlo.at_least(hlo.at_most(rows, columns), 0)]


def _put_diagonal(x: Value, update: Value, offset: int, dim1: int, dim2: int) -> Value:
    """Replace the diagonal of two axes of ``x`` by ``update`` (the diagonal is its last axis)."""
    if is_empty(update.shape):
        return x
    axes = [axis_of(dim1, x.rank), axis_of(dim2, x.rank)]
    return hlo.scatter(
        [x],
        diagonal_indices(update.shape[-1], offset),
        [update],
        lambda _, new: new,
        update_window=list(range(x.rank - 2)),
        inserted=sorted(axes),
        to_operand=axes,
        index_vector_dim=1,
        unique=True,
    )[0]


@lowers(aten.diagonal_scatter.default, dtypes=COPYABLE)
def diagonal_scatter(self: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """``self`` with the diagonal of two axes replaced by ``src``."""
    if not hlo.assume_same_shape(src.shape, _diagonal(self.shape, offset, dim1, dim2)):
        raise LoweringBug(f"{src!r} does not fit a diagonal of {self!r}")
    return _put_diagonal(self, cast(src, self.dtype), offset, dim1, dim2)


@lowers(aten.diagonal_backward.default, dtypes=COPYABLE)
def diagonal_backward(
    grad_output: Value, input_sizes: list[hlo.Dim], offset: int, dim1: int, dim2: int
) -> Value:
    """Place the gradient on the diagonal of two axes in zeros of ``input_sizes``."""
    zeros = hlo.full(input_sizes, 0, grad_output.dtype)
    grad = _widened(grad_output, _diagonal(input_sizes, offset, dim1, dim2))
    return _put_diagonal(zeros, grad, offset, dim1, dim2)


@lowers(
    aten.unfold_backward.default,
    dtypes=COPYABLE - {FLOAT8_E8M0FNU},
    gaps={FLOAT8_E8M0FNU: "this dtype has no zero to start a sum from"},
)
def unfold_backward(
    grad_in: Value, input_sizes: list[hlo.Dim], dim: int, size: int, step: int, out: Spec
) -> Value:
    """Add up the gradients of all windows at their positions; 16-bit floats are added in float32.

    Other axes of ``grad_in`` may have size 1 where ``input_sizes`` has more (``istft`` does this).
    """
    if is_empty(grad_in.shape):
        return hlo.full(input_sizes, 0, out.dtype)
    wide = hlo.convert(grad_in, opmath(out.dtype))
    if not input_sizes:
        return hlo.convert(hlo.reshape(wide, ()), out.dtype)
    axis = axis_of(dim, len(input_sizes))
    count = grad_in.shape[axis]
    rows = tuple(_resized(tuple(input_sizes), axis, count))
    windows = hlo.broadcast_to(
        hlo.move_axis(wide, -1, axis + 1), [*rows[: axis + 1], size, *rows[axis + 1 :]]
    )
    updates = hlo.reshape(windows, _resized(rows, axis, count * size))
    where = hlo.reshape(window_indices(count, size, step), (count * size,))
    zeros = hlo.full(input_sizes, 0, wide.dtype)
    return hlo.convert(hlo.put(zeros, where, updates, axis, lambda a, b: a + b), out.dtype)
