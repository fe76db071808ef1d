"""Layer, group and RMS normalization, and their gradients.

Not here: batch normalization (``batch_norm``).

Each is a composite. Statistics are computed in float32 (float64 for float64),
even if the dtypes of input, weight and bias differ.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence

import torch

from ... import hlo
from ...dtypes import COMPLEX, FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import center, count_of, fill, mean_over, restore
from ..composites import Specs, composed, compute_dtype
from ..misfits import Arguments, other_shape
from ..promotion import broadcast
from ..registry import lowers

aten = namespace("aten")


def affine(x: Value, weight: Value | None, bias: Value | None, axes: Sequence[int]) -> Value:
    """Return ``x * weight + bias``, where weight and bias lie along ``axes``."""
    if weight is not None:
        x = x * hlo.broadcast_in_dim(weight, x.shape, axes)
    if bias is not None:
        x = x + hlo.broadcast_in_dim(bias, x.shape, axes)
    return x


def standardize(x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value, Value]:
    """Scale ``x`` to mean 0 and variance 1 over ``axes``; also return its mean and 1/σ (without ``axes``)."""
    mean, deviation, squares = center(x, axes)
    rstd = hlo.rsqrt(squares / fill(count_of(x, axes, x.dtype), squares.shape) + eps)
    return deviation * restore(rstd, x.shape, axes), mean, rstd


def standardize_gradient(grad: Value, normal: Value, rstd: Value, axes: Sequence[int]) -> Value:
    """Gradient of :func:`standardize` in its input, given its result ``normal``."""
    return _centered_gradient(grad, normal, rstd, axes, mean_over(grad, axes), mean_over(grad * normal, axes))


def _centered_gradient(
    grad: Value, normal: Value, rstd: Value, axes: Sequence[int], along: Value, across: Value
) -> Value:
    """Compute :func:`standardize_gradient`, given the means of ``grad`` and of ``grad * normal``."""
    shape = grad.shape
    return (grad - restore(along, shape, axes) - normal * restore(across, shape, axes)) * restore(
        rstd, shape, axes
    )


def _weighted_mean(x: Value, weight: Value | None, axes: Sequence[int]) -> Value:
    """Return the mean of ``x * weight`` over ``axes``; ``weight`` has exactly these axes.

    It is computed as the product of a matrix and a vector. In a sum of elementwise products, XLA's CPU
    compiler would store each factor in a buffer. Factors that depend only on the forward pass (the
    normalized input, the broadcast weight) would be kept until the backward pass.
    """
    if weight is None:
        return mean_over(x, axes)
    total = hlo.dot_general(x, weight, contract=(axes, range(weight.rank)), full_precision=True)
    return total / fill(count_of(x, axes, x.dtype), total.shape)


def _split(rank: int, normalized: int) -> tuple[list[int], list[int]]:
    """Return the outer axes and the last ``normalized`` axes."""
    return list(range(rank - normalized)), list(range(rank - normalized, rank))


@lowers(aten.native_layer_norm.default, dtypes=FLOATING)
def layer_norm(
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Standardize over the last axes, then scale and shift; also returns mean and 1/σ."""
    _, inner = _split(input.rank, len(normalized_shape))

    def kernel(x: Value, weight: Value | None, bias: Value | None) -> tuple[Value, ...]:
        normal, mean, rstd = standardize(x, inner, eps)
        return affine(normal, weight, bias, inner), mean, rstd

    return composed("layer_norm", [input, weight, bias], kernel, out, {"axes": inner, "epsilon": eps})


def _refuses_misfits(given: Arguments) -> str | None:
    """Refuse tensors that do not fit: eager accepts empty integer inputs and statistics of other rows."""
    outer, _ = _split(given["input"].dim(), len(given["normalized_shape"]))
    rows = math.prod(given["input"].shape[axis] for axis in outer)
    for name in ("mean", "rstd"):
        if given[name].numel() != rows:
            return f"{name} has shape {list(given[name].shape)}, and the input has {rows} rows"
    shapes = {name: given[name].shape for name in ("weight", "bias") if given[name] is not None}
    shapes["input, without its rows,"] = given["input"].shape[len(outer) :]
    for name, shape in shapes.items():
        if said := other_shape(name, shape, given["normalized_shape"]):
            return said
    dtype = given["input"].dtype
    return None if dtype.is_floating_point else f"input is of {dtype}, which is not a floating-point dtype"


@lowers(
    aten.native_layer_norm_backward.default,
    dtypes=FLOATING,
    ignores=("bias", "output_mask"),
    refuses=_refuses_misfits,
)
def layer_norm_backward(
    grad_out: Value,
    input: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    out: Specs,
) -> list[Value | None]:
    """Gradients of layer normalization in input, weight and bias, if requested."""
    outer, inner = _split(input.rank, len(normalized_shape))

    def kernel(grad: Value, x: Value, mean: Value, rstd: Value, weight: Value | None) -> tuple[Value, ...]:
        kept = [x.shape[axis] for axis in outer]
        mean, rstd = hlo.reshape(mean, kept), hlo.reshape(rstd, kept)
        normal = (x - restore(mean, x.shape, inner)) * restore(rstd, x.shape, inner)
        product = grad * normal
        along, across = (_weighted_mean(each, weight, inner) for each in (grad, product))
        scaled = affine(grad, weight, None, inner)
        return (
            _centered_gradient(scaled, normal, rstd, inner, along, across),
            hlo.reduce_sum(product, outer),
            hlo.reduce_sum(grad, outer),
        )

    inputs = [grad_out, input, mean, rstd, weight]
    return composed("layer_norm_backward", inputs, kernel, out, {"axes": inner})


def _refuses_more_axes(given: Arguments) -> str | None:
    """Refuse to normalize over more axes than there are; eager PyTorch normalizes a scalar over any shape."""
    axes, rank = len(given["normalized_shape"]), given["input"].dim()
    return f"it normalizes over {axes} axes, and its input has {rank}" if axes > rank else None


@lowers(aten._fused_rms_norm.default, dtypes=FLOATING | COMPLEX, refuses=_refuses_more_axes)
def rms_norm(
    input: Value, normalized_shape: Sequence[int], weight: Value | None, eps: float | None, out: Specs
) -> list[Value | None]:
    """Divide by the root mean square over the last axes, then scale; also returns the reciprocal root.

    As in PyTorch, the weight may have any shape that broadcasts with the input.
    """
    _, inner = _split(input.rank, len(normalized_shape))
    # By default PyTorch uses the epsilon of the dtype that it computes in (layer_norm.cpp).
    epsilon = torch.finfo(compute_dtype([input]).torch).eps if eps is None else eps

    def kernel(x: Value, weight: Value | None) -> tuple[Value, ...]:
        rstd = hlo.rsqrt(mean_over(x * x, inner) + epsilon)
        normal = x * restore(rstd, x.shape, inner)
        factors = [normal] if weight is None else broadcast([normal, weight], x.dtype)
        return functools.reduce(operator.mul, factors), rstd

    return composed("rms_norm", [input, weight], kernel, out, {"axes": inner, "epsilon": epsilon})


@lowers(aten._fused_rms_norm_backward.default, dtypes=FLOATING, ignores=("output_mask",))
def rms_norm_backward(
    grad_out: Value,
    input: Value,
    normalized_shape: Sequence[int],
    rstd: Value,
    weight: Value | None,
    out: Specs,
) -> list[Value | None]:
    """Gradients of RMS normalization in input and weight, if requested."""
    outer, inner = _split(input.rank, len(normalized_shape))

    def kernel(grad: Value, x: Value, rstd: Value, weight: Value | None) -> tuple[Value, ...]:
        scale = restore(hlo.reshape(rstd, [x.shape[axis] for axis in outer]), x.shape, inner)
        normal, scaled = x * scale, affine(grad, weight, None, inner)
        product = grad * normal
        across = _weighted_mean(product, weight, inner)
        return (scaled - normal * restore(across, x.shape, inner)) * scale, hlo.reduce_sum(product, outer)

    return composed("rms_norm_backward", [grad_out, input, rstd, weight], kernel, out, {"axes": inner})


@lowers(aten.native_group_norm.default, dtypes=FLOATING)
def group_norm(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    N: hlo.Dim,
    C: hlo.Dim,
    HxW: hlo.Dim,
    group: int,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Standardize the channel groups of each sample, then scale and shift each channel."""

    def kernel(x: Value, weight: Value | None, bias: Value | None) -> tuple[Value, ...]:
        normal, mean, rstd = standardize(hlo.reshape(x, (N, group, C // group * HxW)), [2], eps)
        return affine(hlo.reshape(normal, (N, C, HxW)), weight, bias, [1]), mean, rstd

    return composed("group_norm", [input, weight, bias], kernel, out, {"groups": group, "epsilon": eps})


@lowers(aten.native_group_norm_backward.default, dtypes=FLOATING, ignores=("output_mask",))
def group_norm_backward(
    grad_out: Value,
    input: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: hlo.Dim,
    C: hlo.Dim,
    HxW: hlo.Dim,
    group: int,
    out: Specs,
) -> list[Value | None]:
    """Gradients of group normalization in input, weight and bias, if requested."""
    grouped = (N, group, C // group * HxW)

    def kernel(grad: Value, x: Value, mean: Value, rstd: Value, weight: Value | None) -> tuple[Value, ...]:
        x = hlo.reshape(x, grouped)
        normal = (x - restore(mean, grouped, [2])) * restore(rstd, grouped, [2])
        flat = hlo.reshape(grad, (N, C, HxW))
        scaled = hlo.reshape(affine(flat, weight, None, [1]), grouped)
        return (
            standardize_gradient(scaled, normal, rstd, [2]),
            hlo.reduce_sum(flat * hlo.reshape(normal, (N, C, HxW)), [0, 2]),
            hlo.reduce_sum(flat, [0, 2]),
        )

    inputs = [grad_out, input, mean, rstd, weight]
    return composed("group_norm_backward", inputs, kernel, out, {"groups": group})
