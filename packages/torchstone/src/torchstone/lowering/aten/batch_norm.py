"""Batch normalization in training and inference, and its gradients.

Not here: normalization over a sample's own elements (``normalization``).

Each is a composite. Statistics are computed in float32 (float64 for float64).
Running statistics are returned, never written: the compiler handles mutation.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import FLOATING
from ...errors import LoweringBug
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import center, count_of, fill, flatten, restore
from ..composites import Specs, composed
from ..misfits import Arguments, other_shape
from ..promotion import opmath
from ..registry import Spec, lowers
from .normalization import affine

aten = namespace("aten")


def _others(x: Value) -> list[int]:
    """Return all axes except the channel axis."""
    return [axis for axis in range(x.rank) if axis != 1]


def _per_channel(parameter: Value | None) -> Value | None:
    """Flatten a weight or bias: like PyTorch's kernels, accept one number per channel in any shape."""
    return parameter if parameter is None else flatten(parameter)


def _inference(
    input: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, eps: float, out: Spec
) -> Value | None:
    """Scale and shift by the running statistics."""

    def kernel(x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value) -> Value:
        scale = hlo.rsqrt(var + eps)
        if weight is not None:
            scale = scale * weight
        shift = -mean * scale if bias is None else bias - mean * scale
        return affine(x, scale, shift, [1])

    inputs = [input, _per_channel(weight), _per_channel(bias), mean, var]
    return composed("batch_norm_inference", inputs, kernel, out, {"epsilon": eps})[0]


def _training(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    momentum: float,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Return the output, the batch mean, 1/σ, and the running statistics updated by ``momentum``.

    The running variance is updated with the unbiased variance.
    """

    def kernel(
        x: Value,
        weight: Value | None,
        bias: Value | None,
        running_mean: Value | None,
        running_var: Value | None,
    ) -> Sequence[Value | None]:
        axes = _others(x)
        mean, deviation, squares = center(x, axes)
        count = count_of(x, axes, x.dtype)
        invstd = hlo.rsqrt(squares / fill(count, squares.shape) + eps)
        result = affine(deviation * restore(invstd, x.shape, axes), weight, bias, [1])
        if running_mean is None or running_var is None:
            return (result, mean, invstd, None, None)[: len(out)]
        unbiased = squares / fill(count - 1.0, squares.shape)
        new_mean = mean * momentum + running_mean * (1.0 - momentum)
        new_var = unbiased * momentum + running_var * (1.0 - momentum)
        return (result, mean, invstd, new_mean, new_var)[: len(out)]

    inputs = [input, _per_channel(weight), _per_channel(bias), running_mean, running_var]
    return composed("batch_norm_training", inputs, kernel, out, {"momentum": momentum, "epsilon": eps})


def _empty(spec: Spec) -> Value:
    """Return PyTorch's placeholder for statistics that it did not compute."""
    return hlo.full(spec.shape, 0, spec.dtype)


def _refuses_other_channels(given: Arguments) -> str | None:
    """Refuse parameters of another size: kernels read one number for each channel without checking."""
    x = given["input"]
    for name in ("weight", "bias", "running_mean", "running_var"):
        if given.get(name) is not None and x.dim() > 1 and given[name].numel() != x.shape[1]:
            return f"{name} has shape {list(given[name].shape)}, and the input has {x.shape[1]} channels"
    return None


@lowers(aten._native_batch_norm_legit_functional.default, dtypes=FLOATING, refuses=_refuses_other_channels)
def batch_norm_functional(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Batch normalization that also returns the updated running statistics."""
    if training:
        return _training(input, weight, bias, running_mean, running_var, momentum, eps, out)
    output, mean, invstd, new_mean, new_var = _specs(out)
    return [
        _inference(input, weight, bias, running_mean, running_var, eps, output),
        _empty(mean),
        _empty(invstd),
        hlo.convert(running_mean, new_mean.dtype),
        hlo.convert(running_var, new_var.dtype),
    ]


def _specs(out: Specs) -> list[Spec]:
    """Return the specs of a signature that returns all of the results."""
    return [spec for spec in out if spec is not None]


@lowers(
    aten._native_batch_norm_legit_no_training.default,
    dtypes=FLOATING,
    ignores=("momentum",),
    refuses=_refuses_other_channels,
)
def batch_norm_no_training(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Batch normalization with the running statistics."""
    output, mean, invstd = _specs(out)
    result = _inference(input, weight, bias, running_mean, running_var, eps, output)
    return [result, _empty(mean), _empty(invstd)]


@lowers(
    aten._native_batch_norm_legit.no_stats,
    dtypes=FLOATING,
    ignores=("training", "momentum"),
    refuses=_refuses_other_channels,
)
def batch_norm_no_stats(
    input: Value, weight: Value | None, bias: Value | None, eps: float, out: Specs
) -> list[Value | None]:
    """Batch normalization with the statistics of the batch; there are no running statistics."""
    return _training(input, weight, bias, None, None, 0.0, eps, out)


@lowers(aten._batch_norm_with_update_functional.default, dtypes=FLOATING, refuses=_refuses_other_channels)
def batch_norm_with_update(
    input: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Batch normalization in training. The reserved tensor, a workspace for vendor libraries, is empty."""
    output, mean, invstd, reserve, new_mean, new_var = _specs(out)
    specs = [output, mean, invstd, new_mean, new_var]
    made = _training(input, weight, bias, running_mean, running_var, momentum, eps, specs)
    return [*made[:3], _empty(reserve), *made[3:]]


def _gradient(
    grad_out: Value, input: Value, weight: Value | None, mean: Value, invstd: Value, train: bool, out: Specs
) -> list[Value | None]:
    """Gradients of input, weight and bias. In training the statistics depend on the input too."""

    def kernel(grad: Value, x: Value, weight: Value | None, mean: Value, invstd: Value) -> Sequence[Value]:
        axes = _others(x)
        normal = (x - restore(mean, x.shape, axes)) * restore(invstd, x.shape, axes)
        bias_grad, weight_grad = hlo.reduce_sum(grad, axes), hlo.reduce_sum(grad * normal, axes)
        scale = invstd if weight is None else invstd * weight
        if train:
            count = fill(count_of(x, axes, x.dtype), bias_grad.shape)
            along = restore(bias_grad / count, x.shape, axes)
            across = restore(weight_grad / count, x.shape, axes)
            grad = grad - along - normal * across
        return grad * restore(scale, x.shape, axes), weight_grad, bias_grad

    inputs = [grad_out, input, weight, mean, invstd]
    return composed("batch_norm_backward", inputs, kernel, out, {"training": train})


def _refuses_misfits(given: Arguments) -> str | None:
    """Refuse tensors that do not fit the input or its channels: kernels read them without checking."""
    x = given["input"].shape
    if given.get("train", given.get("update")):
        used = ["save_mean", "save_invstd" if "save_invstd" in given else "save_var"]
    else:
        used = ["running_mean", "running_var"]
    wanted = {"grad_out": x} | dict.fromkeys(["weight", *used], x[1:2])
    present = [name for name in wanted if given[name] is not None]
    said = (other_shape(name, given[name].shape, wanted[name]) for name in present)
    return next(filter(None, said), None)


def _running_invstd(var: Value, eps: float) -> Value:
    return hlo.rsqrt(hlo.convert(var, opmath(var.dtype)) + eps)


@lowers(
    aten.native_batch_norm_backward.default,
    dtypes=FLOATING,
    ignores=("output_mask",),
    refuses=_refuses_misfits,
)
def native_batch_norm_backward(
    grad_out: Value,
    input: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_invstd: Value | None,
    train: bool,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """Gradients of batch normalization with respect to input, weight and bias, if requested."""
    if train:
        mean, invstd = save_mean, save_invstd
    else:
        mean, invstd = running_mean, running_var and _running_invstd(running_var, eps)
    if mean is None or invstd is None:
        raise LoweringBug(f"batch_norm_backward(train={train}) lacks the statistics that it needs")
    return _gradient(grad_out, input, weight, mean, invstd, train, out)


@lowers(
    aten.batch_norm_backward.default,
    dtypes=FLOATING,
    ignores=("output_mask", "reserve"),
    refuses=_refuses_misfits,
)
def batch_norm_backward(
    grad_out: Value,
    input: Value,
    weight: Value,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_var: Value | None,
    update: bool,
    eps: float,
    out: Specs,
) -> list[Value | None]:
    """:func:`native_batch_norm_backward` with newer argument names; on the CPU ``save_var`` is 1/σ."""
    return native_batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, out
    )
