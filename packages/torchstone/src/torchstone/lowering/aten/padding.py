"""Padding by a constant, by reflection and by repetition of the border, with the gradients.

Circular padding is what PyTorch expands it into, slices and copies.
``padding`` lists (before, after) pairs from the last axis on; negative numbers crop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import hlo
from ...dtypes import COPYABLE, STANDARD
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import NOTHING_TO_DO, is_empty
from ..composites import Expand, composed_whole, expanded
from ..promotion import as_value, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

UNPADDED = dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO)
OneAxis = Callable[[Value, int, int, int], Value]
"""From a value, an axis and how much to pad before and after it."""


@lowers(aten.constant_pad_nd.default, dtypes=COPYABLE)
def constant_pad_nd(self: Value, pad: list[hlo.Dim], value: Any = 0) -> Value:
    """A constant around the tensor."""
    before: list[hlo.Dim] = [0] * self.rank
    after: list[hlo.Dim] = [0] * self.rank
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return hlo.pad(self, as_value(value, self.dtype), before, after)


def _cropped(x: Value, axis: int, before: int, after: int) -> Value:
    """``x`` without as many elements as the negative ones of ``before`` and ``after`` say."""
    return hlo.slice_axis(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))


def _uncropped(grad: Value, axis: int, before: int, after: int) -> Value:
    """Zeros put back where :func:`_cropped` took elements away."""
    return hlo.pad_axis(grad, 0, axis, max(-before, 0), max(-after, 0))


def _reflect(x: Value, axis: int, before: int, after: int) -> Value:
    size, low, high = x.shape[axis], max(before, 0), max(after, 0)
    head = hlo.reverse(hlo.slice_axis(x, axis, 1, 1 + low), [axis])
    tail = hlo.reverse(hlo.slice_axis(x, axis, size - 1 - high, size - 1), [axis])
    return _cropped(hlo.concatenate([head, x, tail], axis), axis, before, after)


def _reflect_back(grad: Value, axis: int, before: int, after: int) -> Value:
    low, high = max(before, 0), max(after, 0)
    grad = _uncropped(grad, axis, before, after)
    size = grad.shape[axis] - low - high
    head = hlo.reverse(hlo.slice_axis(grad, axis, 0, low), [axis])
    tail = hlo.reverse(hlo.slice_axis(grad, axis, low + size, low + size + high), [axis])
    return (
        hlo.slice_axis(grad, axis, low, low + size)
        + hlo.pad_axis(head, 0, axis, 1, size - 1 - low)
        + hlo.pad_axis(tail, 0, axis, size - 1 - high, 1)
    )


def _border(x: Value, axis: int, at: hlo.Dim, times: int) -> Value:
    """One index of an axis repeated."""
    part = hlo.slice_axis(x, axis, at, at + 1)
    return hlo.broadcast_to(part, [times if i == axis else d for i, d in enumerate(x.shape)])


def _replicate(x: Value, axis: int, before: int, after: int) -> Value:
    head = _border(x, axis, 0, max(before, 0))
    tail = _border(x, axis, x.shape[axis] - 1, max(after, 0))
    return _cropped(hlo.concatenate([head, x, tail], axis), axis, before, after)


def _replicate_back(grad: Value, axis: int, before: int, after: int) -> Value:
    low, high = max(before, 0), max(after, 0)
    grad = _uncropped(grad, axis, before, after)
    size = grad.shape[axis] - low - high

    def total(start: hlo.Dim, limit: hlo.Dim) -> Value:
        part = hlo.reduce_sum(hlo.slice_axis(grad, axis, start, limit), [axis])
        return hlo.expand_dims(part, [axis])

    return (
        hlo.slice_axis(grad, axis, low, low + size)
        + hlo.pad_axis(total(0, low), 0, axis, 0, size - 1)
        + hlo.pad_axis(total(low + size, low + size + high), 0, axis, size - 1, 0)
    )


def _each_axis(x: Value, padding: list[int], one: OneAxis) -> Value:
    for i in range(len(padding) // 2):
        if padding[2 * i] or padding[2 * i + 1]:
            x = one(x, x.rank - 1 - i, padding[2 * i], padding[2 * i + 1])
    return x


def _backward(grad: Value, padding: list[int], out: Spec, one: OneAxis) -> Value:
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    return hlo.convert(_each_axis(hlo.convert(grad, opmath(out.dtype)), padding, one), out.dtype)


@lowers(
    aten.reflection_pad1d.default,
    aten.reflection_pad2d.default,
    aten.reflection_pad3d.default,
    dtypes=STANDARD,
)
def reflection_pad(self: Value, padding: list[int], out: Spec) -> Value:
    """The tensor mirrored at its borders, which are not repeated."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)

    def kernel(x: Value) -> Value:
        return _each_axis(x, padding, _reflect)

    return composed_whole("reflect_pad", [self], kernel, out, {"padding": padding})


@lowers(aten._pad_circular.default, dtypes=COPYABLE)
def circular_pad(self: Value, pad: list[int], expand: Expand, out: Spec) -> list[Value]:
    """The tensor continued from its other end."""
    return expanded("circular_pad", [self], expand, out, {"padding": pad})


@lowers(
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    dtypes=STANDARD,
)
def replication_pad(self: Value, padding: list[int], out: Spec) -> Value:
    """The tensor with its borders repeated."""
    return hlo.full(out.shape, 0, out.dtype) if is_empty(out.shape) else _each_axis(self, padding, _replicate)


# The gradient's shape and the padding say what the operand's shape was.
@lowers(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
    dtypes=STANDARD,
    gaps=UNPADDED,
    ignores=("self",),
)
def reflection_pad_backward(grad_output: Value, padding: list[int], out: Spec) -> Value:
    """Each gradient added to the element that it mirrors."""
    return _backward(grad_output, padding, out, _reflect_back)


@lowers(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
    dtypes=STANDARD,
    gaps=UNPADDED,
    ignores=("self",),
)
def replication_pad_backward(grad_output: Value, padding: list[int], out: Spec) -> Value:
    """Each gradient added to the element that it repeats."""
    return _backward(grad_output, padding, out, _replicate_back)
