"""Convolutions, transposed convolutions and their gradients.

Three maps, all on ``(batch, channel, *spatial)``: :func:`_correlate`, its
adjoint in the input :func:`_spread`, and its adjoint in the kernel
:func:`_kernel_gradient`. A transposed convolution is the adjoint of a
convolution, so its own gradients are the other two with the roles exchanged.
Each is one ``stablehlo.convolution``.

Not here: ``im2col`` and ``col2im`` (``resize``), pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ... import hlo
from ...dtypes import COMPLEX, FLOATING, INTEGRAL
from ...hlo import Value
from ..common import static_size
from ..promotion import opmath
from ..registry import Spec, lowers

aten = torch.ops.aten


@dataclass(frozen=True)
class _Window:
    """How a kernel moves over the input, one entry per spatial axis."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @classmethod
    def of(
        cls, rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
    ) -> _Window:
        """Lists of one entry hold for every axis."""
        stride, padding, dilation = (
            tuple(values) * (rank if len(values) == 1 else 1) for values in (stride, padding, dilation)
        )
        return cls(stride, padding, dilation, groups)

    def reach(self, kernel: Value) -> list[int]:
        """Distance between the first and the last element that the kernel covers, per axis."""
        return [d * (size - 1) for d, size in zip(self.dilation, kernel.shape[2:], strict=True)]


@lowers(
    aten.convolution.default,
    dtypes=INTEGRAL | FLOATING | COMPLEX,
    ignores=("output_padding",),  # the result's shape says it
)
def convolution(
    input: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    out: Spec,
) -> Value:
    """Convolution of ``(n, c, *spatial)`` with ``(o, c / groups, *kernel)``, or its transpose."""
    window = _Window.of(input.rank - 2, stride, padding, dilation, groups)
    if transposed:
        result = _spread(input, weight, window, out.shape[2:])
    else:
        result = _correlate(input, weight, window)
    if bias is not None:
        wide = hlo.convert(bias, result.dtype)
        result = result + hlo.broadcast_in_dim(wide, result.shape, [1])
    return hlo.convert(result, out.dtype)


@lowers(
    aten.convolution_backward.default,
    dtypes=INTEGRAL | FLOATING | COMPLEX,
    ignores=("bias_sizes", "output_padding"),  # both follow from the other shapes
)
def convolution_backward(
    grad_output: Value,
    input: Value,
    weight: Value,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Value | None, Value | None, Value | None]:
    """Gradients of a convolution in its input, weight and bias, as far as ``output_mask`` asks for them."""
    window = _Window.of(input.rank - 2, stride, padding, dilation, groups)
    in_input, in_weight, in_bias = None, None, None
    if output_mask[0]:
        kernel = hlo.conj(weight)
        if transposed:
            in_input = _correlate(grad_output, kernel, window)
        else:
            in_input = _spread(grad_output, kernel, window, input.shape[2:])
    if output_mask[1]:
        large, small = (grad_output, hlo.conj(input)) if transposed else (hlo.conj(input), grad_output)
        in_weight = _kernel_gradient(large, small, window, weight.shape)
    if output_mask[2]:
        wide = hlo.convert(grad_output, opmath(grad_output.dtype))
        in_bias = hlo.reduce_sum(wide, [0, *range(2, wide.rank)])
    gradients = (in_input, in_weight, in_bias)
    narrow = tuple(None if g is None else hlo.convert(g, grad_output.dtype) for g in gradients)
    return narrow[0], narrow[1], narrow[2]


# The three maps ---------------------------------------------------------------------


def _correlate(x: Value, kernel: Value, window: _Window) -> Value:
    """Cross-correlation of ``(n, c, *spatial)`` with ``(o, c / groups, *kernel)``."""
    return hlo.convolution(
        x,
        kernel,
        strides=window.stride,
        padding=[(p, p) for p in window.padding],
        rhs_dilation=window.dilation,
        groups=window.groups,
        accumulate=opmath(x.dtype),
    )


def _spread(x: Value, kernel: Value, window: _Window, sizes: Sequence[hlo.Dim]) -> Value:
    """The adjoint of :func:`_correlate` in its input: ``(n, o, …)`` to ``(n, c, *sizes)``.

    ``x`` is stretched by the stride and correlated with the mirrored kernel.
    """
    groups, (o, c) = window.groups, kernel.shape[:2]
    spatial = list(range(2, kernel.rank))
    mirrored = hlo.reverse(kernel, spatial)
    if groups != 1:  # (g·o, c, …) to (o, g·c, …)
        split = hlo.reshape(mirrored, (groups, o // groups, *mirrored.shape[1:]))
        mirrored = hlo.reshape(hlo.move_axis(split, 0, 1), (o // groups, groups * c, *mirrored.shape[2:]))
    padding, surplus = [], []
    for axis, reach in enumerate(window.reach(kernel)):
        low = reach - window.padding[axis]
        stretched = (x.shape[2 + axis] - 1) * window.stride[axis] + 1
        high = hlo.static_dim(sizes[axis] - (stretched + low - reach))
        if high is None:  # the size is symbolic: enough for every remainder, cut below
            high = low + window.stride[axis] - 1
        padding.append((low, high))
        surplus.append(stretched + low + high - reach)
    result = hlo.convolution(
        x,
        mirrored,
        strides=[1] * len(spatial),
        padding=padding,
        lhs_dilation=window.stride,
        rhs_dilation=window.dilation,
        groups=groups,
        layout=("bf", "io", "bf"),
        accumulate=opmath(x.dtype),
    )
    if hlo.same_shape(sizes, surplus):
        return result
    return hlo.slice_(result, [0] * result.rank, [*result.shape[:2], *sizes])


def _kernel_gradient(x: Value, grad: Value, window: _Window, shape: hlo.Shape) -> Value:
    """The adjoint of :func:`_correlate` in its kernel, of ``shape``: ``x`` correlated with ``grad``.

    Batch and channel exchange their roles; the stride becomes the dilation.
    """
    padding = []
    for axis, size in enumerate(shape[2:]):
        reach = window.dilation[axis] * (size - 1)
        covered = (grad.shape[2 + axis] - 1) * window.stride[axis] + 1 + reach
        low = window.padding[axis]
        high = static_size(covered - x.shape[2 + axis] - low, "the weight gradient of a strided convolution")
        padding.append((low, high))
    return hlo.convolution(
        x,
        grad,
        strides=window.dilation,
        padding=padding,
        rhs_dilation=window.stride,
        batch_groups=window.groups,
        layout=("fb", "io", "fb"),
        accumulate=opmath(x.dtype),
    )
