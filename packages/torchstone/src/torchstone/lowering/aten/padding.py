"""Padding with a constant, by reflection, or by repeating the border, and the gradients.

Circular padding uses PyTorch's own expansion into slices and copies.
``padding`` lists (before, after) pairs, starting from the last axis. Negative numbers crop.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ... import hlo
from ...dtypes import COPYABLE, STANDARD
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import NOTHING_TO_DO, is_empty
from ..composites import Expand, composed_whole, expanded
from ..misfits import Arguments, other_shape
from ..promotion import as_value, opmath
from ..registry import Spec, lowers

aten = namespace("aten")

UNPADDED = dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO)
OneAxis = Callable[[Value, int, int, int], Value]
"""Pads along one axis: takes a value, the axis, and the amounts to pad before and after."""


@lowers(aten.constant_pad_nd.default, dtypes=COPYABLE)
def constant_pad_nd(self: Value, pad: list[hlo.Dim], value: Any = 0) -> Value:
    """Pad the tensor with a constant."""
    before: list[hlo.Dim] = [0] * self.rank
    after: list[hlo.Dim] = [0] * self.rank
    for i in range(len(pad) // 2):
        before[-1 - i], after[-1 - i] = pad[2 * i], pad[2 * i + 1]
    return hlo.pad(self, as_value(value, self.dtype), before, after)


def _cropped(x: Value, axis: int, before: int, after: int) -> Value:
    """Crop ``x`` by ``before`` and ``after`` where these are negative."""
    return hlo.slice_axis(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))


def _uncropped(grad: Value, axis: int, before: int, after: int) -> Value:
    """Put back zeros where :func:`_cropped` removed elements."""
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
    """Repeat one index of an axis."""
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
    """Mirror the tensor at its borders, without repeating the border elements."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)

    def kernel(x: Value) -> Value:
        return _each_axis(x, padding, _reflect)

    return composed_whole("reflect_pad", [self], kernel, out, {"padding": padding})


@lowers(aten._pad_circular.default, dtypes=COPYABLE)
def circular_pad(self: Value, pad: list[int], expand: Expand, out: Spec) -> list[Value]:
    """Continue the tensor periodically."""
    return expanded("circular_pad", [self], expand, out, {"padding": pad})


@lowers(
    aten.replication_pad1d.default,
    aten.replication_pad2d.default,
    aten.replication_pad3d.default,
    dtypes=STANDARD,
)
def replication_pad(self: Value, padding: list[int], out: Spec) -> Value:
    """Repeat the borders of the tensor."""
    return hlo.full(out.shape, 0, out.dtype) if is_empty(out.shape) else _each_axis(self, padding, _replicate)


def _refuses_other_rows(given: Arguments) -> str | None:
    """Refuse gradients of other rows: kernels read as many rows as the padded tensor has, unchecked."""
    kept = given["self"].shape[: -(len(given["padding"]) // 2)]
    padded = given["grad_output"].shape[len(kept) :]
    return other_shape("grad_output", given["grad_output"].shape, (*kept, *padded))


_lowers_backward = partial(
    lowers,
    dtypes=STANDARD,
    gaps=UNPADDED,
    ignores=("self",),  # the gradient's shape and the padding determine the operand's shape
    refuses=_refuses_other_rows,
)


@_lowers_backward(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(grad_output: Value, padding: list[int], out: Spec) -> Value:
    """Add each gradient to the element that it mirrors."""
    return _backward(grad_output, padding, out, _reflect_back)


@_lowers_backward(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(grad_output: Value, padding: list[int], out: Spec) -> Value:
    """Add each gradient to the element that it repeats."""
    return _backward(grad_output, padding, out, _replicate_back)
