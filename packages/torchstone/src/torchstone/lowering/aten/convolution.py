"""Convolutions, transposed convolutions and their gradients.

A transposed convolution is the adjoint of a convolution in its input. Its
gradients are the other two maps of :mod:`..correlation` with swapped roles.

Not here: ``im2col`` and ``col2im`` (``unfold``), pooling.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import COMPLEX, FLOAT8, FLOATING, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..correlation import correlate, kernel_gradient, spread
from ..promotion import opmath
from ..registry import Spec, lowers
from ..windows import Windows

aten = namespace("aten")


@lowers(
    aten.convolution.default,
    aten._convolution.default,
    dtypes=INTEGRAL | FLOATING | COMPLEX,
    # The shape of the result determines the first; the others choose among PyTorch's own kernels.
    ignores=("output_padding", "benchmark", "deterministic", "cudnn_enabled", "allow_tf32"),
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
    large, small = (out.shape, input.shape) if transposed else (input.shape, out.shape)
    windows = Windows.of(large[2:], small[2:], weight.shape[2:], stride, padding, dilation)
    result = (spread if transposed else correlate)(input, weight, windows, groups)
    if bias is not None:
        result = result + hlo.broadcast_in_dim(hlo.convert(bias, result.dtype), result.shape, [1])
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
) -> list[Value | None]:
    """Gradients of a convolution in its input, weight and bias, as requested by ``output_mask``."""
    large, small = (grad_output, hlo.conj(input)) if transposed else (hlo.conj(input), grad_output)
    windows = Windows.of(large.shape[2:], small.shape[2:], weight.shape[2:], stride, padding, dilation)
    gradients: list[Value | None] = [None, None, None]
    if output_mask[0]:
        back = correlate if transposed else spread
        gradients[0] = back(grad_output, hlo.conj(weight), windows, groups)
    if output_mask[1]:
        gradients[1] = kernel_gradient(large, small, windows, groups)
    if output_mask[2]:
        wide = hlo.convert(grad_output, opmath(grad_output.dtype))
        gradients[2] = hlo.reduce_sum(wide, [0, *range(2, wide.rank)])
    return [None if g is None else hlo.convert(g, grad_output.dtype) for g in gradients]


@lowers(
    aten.conv_tbc.default,
    dtypes=INTEGRAL | FLOATING | COMPLEX,
    gaps=dict.fromkeys(FLOAT8, "eager rounds the sum to float8 after every element of the kernel"),
)
def conv_tbc(self: Value, weight: Value, bias: Value, pad: int = 0, *, out: Spec) -> Value:
    """Convolution of ``(time, n, c)`` with ``(kernel, c, o)``."""
    signal, kernel = hlo.transpose(self, [1, 2, 0]), hlo.transpose(weight, [2, 1, 0])
    windows = Windows.of(self.shape[:1], out.shape[:1], weight.shape[:1], [1], [pad])
    result = hlo.transpose(correlate(signal, kernel, windows, 1), [2, 0, 1])
    return hlo.convert(result + hlo.broadcast_to(hlo.convert(bias, result.dtype), result.shape), out.dtype)
