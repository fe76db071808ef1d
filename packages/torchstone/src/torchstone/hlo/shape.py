"""Operations that move elements without computing on them.

Each takes static and symbolic dimensions through one signature, and picks the
static StableHLO operation or its ``dynamic_*`` form itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..dtypes import INT64, DType
from ..errors import LoweringBug
from ._mlir import stablehlo
from .dimensions import (
    Dim,
    Shape,
    assume_same,
    assume_same_shape,
    at_least,
    is_static,
    plain,
    same_dim,
    same_shape,
)
from .value import Number, Value, scalar, shape_operand, tensor_type


def broadcast_in_dim(x: Value, shape: Sequence[Dim], dims: Sequence[int]) -> Value:
    """Place axis ``i`` of ``x`` at ``dims[i]`` of ``shape`` and repeat along the others.

    Axes of ``x`` have the target's size or size 1.
    """
    shape = plain(shape)
    target = tensor_type(shape, x.dtype)
    if is_static(shape) and is_static(x.shape):
        return Value(stablehlo.broadcast_in_dim(target, x.ir, list(dims)), shape, x.dtype)
    result = stablehlo.dynamic_broadcast_in_dim(target, x.ir, shape_operand(shape).ir, list(dims))
    return Value(result, shape, x.dtype)


def broadcast_to(x: Value, shape: Sequence[Dim]) -> Value:
    """Broadcast to ``shape`` with NumPy's rule: trailing axes align, size 1 stretches."""
    shape = plain(shape)
    if same_shape(x.shape, shape):
        return x
    lead = len(shape) - x.rank
    if lead < 0 or not all(
        same_dim(have, 1) or assume_same(have, want) for have, want in zip(x.shape, shape[lead:], strict=True)
    ):
        raise LoweringBug(f"{x!r} does not broadcast to shape {tuple(shape)}")
    return broadcast_in_dim(x, shape, range(lead, len(shape)))


def broadcast_shapes(*shapes: Sequence[Dim]) -> Shape:
    """Return the common shape of several shapes under NumPy's rule; raise :class:`LoweringBug` if none."""
    rank = max(map(len, shapes), default=0)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if same_dim(result[axis], 1):
                result[axis] = dim
            elif not same_dim(dim, 1) and not assume_same(dim, result[axis]):
                raise LoweringBug(f"shapes {[tuple(s) for s in shapes]} do not broadcast")
    return tuple(result)


def reshape(x: Value, shape: Sequence[Dim]) -> Value:
    """The same elements, in row-major order, in another shape (no ``-1``)."""
    shape = plain(shape)
    if same_shape(x.shape, shape):
        return x
    target = tensor_type(shape, x.dtype)
    if is_static(shape) and is_static(x.shape):
        if x.numel != _count(shape):
            raise LoweringBug(f"cannot reshape {x!r} to {tuple(shape)}")
        return Value(stablehlo.reshape(target, x.ir), shape, x.dtype)
    return Value(stablehlo.dynamic_reshape(target, x.ir, shape_operand(shape).ir), shape, x.dtype)


def respelled(x: Value, shape: Sequence[Dim]) -> Value:
    """Replace the symbolic sizes of ``x`` by those of ``shape``, which are equal but may be known as ints."""
    have = plain(x.shape)
    sizes = [old if isinstance(old, int) else new for old, new in zip(have, plain(shape), strict=True)]
    if list(map(type, sizes)) == list(map(type, x.shape)):
        return Value(x.ir, sizes, x.dtype)
    target = tensor_type(sizes, x.dtype)
    return Value(stablehlo.dynamic_reshape(target, x.ir, shape_operand(sizes).ir), sizes, x.dtype)


def _count(shape: Sequence[int]) -> int:
    total = 1
    for dim in shape:
        total *= dim
    return total


def expand_dims(x: Value, axes: Sequence[int]) -> Value:
    """Insert size-1 axes so that they end up at ``axes`` of the result."""
    rank = x.rank + len(axes)
    places = {axis % rank for axis in axes}
    rest = iter(x.shape)
    return reshape(x, [1 if axis in places else next(rest) for axis in range(rank)])


def squeeze(x: Value, axes: Sequence[int]) -> Value:
    """Drop the given axes, all of size 1."""
    drop = {axis % x.rank for axis in axes}
    return reshape(x, [dim for axis, dim in enumerate(x.shape) if axis not in drop])


def transpose(x: Value, permutation: Sequence[int]) -> Value:
    """Permute axes: axis ``i`` of the result is axis ``permutation[i]`` of ``x``."""
    if list(permutation) == list(range(x.rank)):
        return x
    shape = [x.shape[axis] for axis in permutation]
    return Value(stablehlo.transpose(x.ir, list(permutation)), shape, x.dtype)


def move_axis(x: Value, source: int, destination: int) -> Value:
    """Move one axis; the others keep their order."""
    order = [axis for axis in range(x.rank) if axis != source % x.rank]
    order.insert(destination % x.rank, source % x.rank)
    return transpose(x, order)


def reverse(x: Value, axes: Sequence[int]) -> Value:
    """Reverse the order of elements along ``axes``."""
    return Value(stablehlo.reverse(x.ir, list(axes)), x.shape, x.dtype) if axes else x


def concatenate(values: Sequence[Value], axis: int) -> Value:
    """Join values along ``axis``; their dtypes and other dimensions are equal."""
    if len(values) == 1:
        return values[0]
    first = values[0]
    size = sum((value.shape[axis] for value in values[1:]), first.shape[axis])
    for value in values[1:]:
        others = [d for i, d in enumerate(value.shape) if i != axis]
        if value.dtype is not first.dtype or not assume_same_shape(
            others, [d for i, d in enumerate(first.shape) if i != axis]
        ):
            raise LoweringBug(f"cannot concatenate {first!r} and {value!r} along {axis}")
    shape = plain([size if i == axis else d for i, d in enumerate(first.shape)])
    operation = stablehlo.ConcatenateOp(
        [value.ir for value in values], axis, results=[tensor_type(shape, first.dtype)]
    )
    return Value(operation.result, shape, first.dtype)


def iota(shape: Sequence[Dim], axis: int, dtype: DType) -> Value:
    """Return a value whose elements are their own indices along ``axis``."""
    shape = plain(shape)
    target = tensor_type(shape, dtype)
    if is_static(shape):
        return Value(stablehlo.iota(target, axis), shape, dtype)
    return Value(stablehlo.dynamic_iota(target, shape_operand(shape).ir, axis), shape, dtype)


def slice_(
    x: Value, starts: Sequence[Dim], limits: Sequence[Dim], strides: Sequence[int] | None = None
) -> Value:
    """Elements ``starts[i] : limits[i] : strides[i]`` of each axis; bounds are within the axis."""
    strides = list(strides or [1] * x.rank)
    shape = plain(
        [(high - low + step - 1) // step for low, high, step in zip(starts, limits, strides, strict=True)]
    )
    starts, limits = plain(starts), plain(limits)
    if is_static(starts) and is_static(limits) and is_static(x.shape):
        if list(starts) == [0] * x.rank and list(limits) == list(x.shape) and set(strides) <= {1}:
            return x
        return Value(stablehlo.slice(x.ir, list(starts), list(limits), strides), shape, x.dtype)
    result = stablehlo.real_dynamic_slice(
        tensor_type(shape, x.dtype),
        x.ir,
        shape_operand(starts).ir,
        shape_operand(limits).ir,
        shape_operand(strides).ir,
    )
    return Value(result, shape, x.dtype)


def slice_axis(x: Value, axis: int, start: Dim, limit: Dim, stride: int = 1) -> Value:
    """``start : limit : stride`` along one axis, everything along the others."""
    starts: list[Dim] = [0] * x.rank
    limits = list(x.shape)
    strides = [1] * x.rank
    starts[axis], limits[axis], strides[axis] = start, limit, stride
    return slice_(x, starts, limits, strides)


def dynamic_slice(x: Value, starts: Sequence[Value], sizes: Sequence[Dim]) -> Value:
    """Take a block of ``sizes`` at run-time ``starts`` (0-d integers, clamped into range)."""
    sizes = plain(sizes)
    if not is_static(sizes):
        first = concatenate([reshape(start, (1,)) for start in starts], 0)
        return _symbolic_slice(x, first, sizes)
    return Value(stablehlo.dynamic_slice(x.ir, [s.ir for s in starts], list(sizes)), sizes, x.dtype)


def _symbolic_slice(x: Value, starts: Value, sizes: Shape) -> Value:
    """Slice up to starts plus sizes: in this form, StableHLO's shape refinement finds the sizes."""
    extent, size = shape_operand(x.shape), shape_operand(sizes)
    kind = extent.ir.type
    first = starts.ir if starts.ir.type == kind else stablehlo.convert(kind, starts.ir)
    none, step = shape_operand([0] * x.rank), shape_operand([1] * x.rank)
    first = stablehlo.clamp(none.ir, first, stablehlo.subtract(extent.ir, size.ir))
    limit = stablehlo.add(first, size.ir)
    result = stablehlo.real_dynamic_slice(tensor_type(sizes, x.dtype), x.ir, first, limit, step.ir)
    return Value(result, sizes, x.dtype)


def dynamic_update_slice(x: Value, update: Value, starts: Sequence[Value]) -> Value:
    """Replace a block of ``x`` at run-time ``starts`` (0-d integers, clamped into range)."""
    return Value(stablehlo.dynamic_update_slice(x.ir, update.ir, [s.ir for s in starts]), x.shape, x.dtype)


def pad(
    x: Value,
    value: Value | Number,
    low: Sequence[Dim],
    high: Sequence[Dim],
    interior: Sequence[int] | None = None,
) -> Value:
    """Add ``low``/``high`` elements (negative: crop) and ``interior`` ones between neighbors."""
    fill = value if isinstance(value, Value) else scalar(value, x.dtype)
    interior = list(interior or [0] * x.rank)
    low, high = plain(low), plain(high)
    shape: list[Dim] = []
    for size, before, after, between in zip(x.shape, low, high, interior, strict=True):
        gaps = at_least(size - 1, 0) * between if between else 0
        shape.append(size + gaps + before + after)
    shape = list(plain(shape))
    if is_static(low) and is_static(high) and is_static(x.shape):
        return Value(stablehlo.pad(x.ir, fill.ir, list(low), list(high), interior), shape, x.dtype)
    result = stablehlo.dynamic_pad(
        tensor_type(shape, x.dtype),
        x.ir,
        fill.ir,
        shape_operand(low).ir,
        shape_operand(high).ir,
        shape_operand(interior).ir,
    )
    return Value(result, shape, x.dtype)


def pad_axis(x: Value, value: Value | Number, axis: int, low: Dim, high: Dim) -> Value:
    """:func:`pad` along one axis."""
    before: list[Dim] = [0] * x.rank
    after: list[Dim] = [0] * x.rank
    before[axis], after[axis] = low, high
    return pad(x, value, before, after)


def index_of(x: Value, axis: int, dtype: DType = INT64) -> Value:
    """For each element of ``x``, its index along ``axis`` (same shape as ``x``)."""
    return iota(x.shape, axis, dtype)
