"""Pointwise loss functions with a reduction, and their gradients.

Not here: losses that look up classes (``class_loss``), CTC, and losses that
PyTorch composes from other operators, such as cross entropy, KL divergence, L1,
embedding and triplet losses (``composed_loss``).

Each is a composite; 16-bit floats are computed in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

import torch

from ... import hlo
from ...dtypes import COMPLEX, FLOATING, INTEGRAL
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..common import count_of, fill, mean_over
from ..composites import composed
from ..conditions import CROSS_ENTROPY
from ..promotion import broadcast, promote_dtypes
from ..record import Check
from ..registry import Spec, lowers

aten = namespace("aten")

NO_INTEGER_LOSS = dict.fromkeys(
    INTEGRAL, "the loss itself does not accept integers, so it has no integer gradient"
)

Pointwise = Callable[..., Value]


class Reduction(IntEnum):
    """How a loss combines its elements (ATen/core/Reduction.h)."""

    NONE = 0
    MEAN = 1
    SUM = 2


def reduced(losses: Value, reduction: int) -> Value:
    """Return the losses themselves, their mean, or their sum."""
    axes = list(range(losses.rank))
    if reduction == Reduction.MEAN:
        return mean_over(losses, axes)
    return hlo.reduce_sum(losses, axes) if reduction == Reduction.SUM else losses


def spread(grad: Value, shape: hlo.Shape, reduction: int, divisor: Value | None = None) -> Value:
    """Gradient of :func:`reduced`: give each of the losses of ``shape`` its share of ``grad``.

    For a mean, ``grad`` is divided by the number of losses, or by ``divisor``, a 0-d value.
    """
    grad = hlo.broadcast_to(grad, shape)
    if reduction != Reduction.MEAN:
        return grad
    return grad / fill(count_of(grad, range(grad.rank), grad.dtype) if divisor is None else divisor, shape)


def reduction_name(reduction: int) -> str:
    """Return the name for the attributes of a composite: ``none``, ``mean`` or ``sum``."""
    return Reduction(reduction).name.lower()


def _broadcast(values: Sequence[Value | None]) -> list[Value | None]:
    """Broadcast the operands to one shape, and convert them to their promoted dtype."""
    present = [value for value in values if value is not None]
    feed = iter(broadcast(present, promote_dtypes(*(value.dtype for value in present))))
    return [value if value is None else next(feed) for value in values]


def _loss(
    name: str, inputs: Sequence[Value | None], loss: Pointwise, reduction: int, out: Spec, **attributes: float
) -> list[Value | None]:
    """Broadcast the inputs, compute ``loss(*inputs)``, and reduce it."""

    def kernel(*values: Value | None) -> Value:
        return reduced(loss(*_broadcast(values)), reduction)

    return composed(name, inputs, kernel, out, {"reduction": reduction_name(reduction), **attributes})


def _gradient(
    name: str,
    grad: Value,
    inputs: Sequence[Value | None],
    slope: Pointwise,
    reduction: int,
    out: Spec,
    **attributes: float,
) -> list[Value | None]:
    """Gradient of :func:`_loss` in its first input; ``slope(*inputs)`` is the elementwise derivative.

    For a mean, PyTorch divides by the number of elements of that input, even if the input is broadcast.
    """

    def kernel(grad: Value, x: Value, *rest: Value | None) -> Value:
        number = count_of(x, range(x.rank), grad.dtype)
        slopes = hlo.broadcast_to(slope(*_broadcast([x, *rest])), out.shape)
        return spread(grad, out.shape, reduction, number) * slopes

    return composed(
        name, [grad, *inputs], kernel, out, {"reduction": reduction_name(reduction), **attributes}
    )


@lowers(aten.mse_loss.default, dtypes=FLOATING)
def mse_loss(self: Value, target: Value, reduction: int = 1, *, out: Spec) -> list[Value | None]:
    """``(self − target)²``."""
    return _loss("mse_loss", [self, target], lambda x, t: (x - t) * (x - t), reduction, out)


@lowers(aten.mse_loss_backward.default, dtypes=FLOATING, gaps=NO_INTEGER_LOSS)
def mse_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, out: Spec
) -> list[Value | None]:
    """Gradient of the squared error."""
    return _gradient(
        "mse_loss_backward", grad_output, [self, target], lambda x, t: (x - t) * 2.0, reduction, out
    )


@lowers(aten.smooth_l1_loss.default, dtypes=FLOATING)
def smooth_l1_loss(
    self: Value, target: Value, reduction: int = 1, beta: float = 1.0, *, out: Spec
) -> list[Value | None]:
    """``|self − target| − beta/2`` where the distance is at least ``beta``, a parabola below."""

    def loss(x: Value, t: Value) -> Value:
        distance = hlo.abs_(x - t)
        if not beta:
            return distance
        return hlo.select(distance < beta, distance * distance * 0.5 / beta, distance - 0.5 * beta)

    return _loss("smooth_l1_loss", [self, target], loss, reduction, out, beta=beta)


def _refuses_negative(name: str) -> Check:
    """Return a check that refuses gradients of losses that PyTorch itself refuses."""

    def refuses(arguments: Mapping[str, Any]) -> str | None:
        """Refuse a negative ``delta`` or ``beta``: the loss refuses it, so its gradient has no meaning."""
        if arguments[name] < 0:
            return f"{name} is {arguments[name]}, which the loss itself refuses: it has to be at least 0"
        return None

    return refuses


@lowers(
    aten.smooth_l1_loss_backward.default,
    dtypes=FLOATING,
    gaps=NO_INTEGER_LOSS,
    refuses=_refuses_negative("beta"),
)
def smooth_l1_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, beta: float, out: Spec
) -> list[Value | None]:
    """Gradient of the smooth L1 loss."""

    def slope(x: Value, t: Value) -> Value:
        difference = x - t
        if not beta:
            return hlo.sign(difference)
        beyond = hlo.abs_(difference) >= beta  # never, if beta is NaN
        return hlo.select(beyond, hlo.sign(difference), difference / beta)

    return _gradient("smooth_l1_loss_backward", grad_output, [self, target], slope, reduction, out, beta=beta)


@lowers(aten.huber_loss.default, dtypes=FLOATING)
def huber_loss(
    self: Value, target: Value, reduction: int = 1, delta: float = 1.0, *, out: Spec
) -> list[Value | None]:
    """``delta · (|self − target| − delta/2)`` where that distance exceeds ``delta``, else half its square."""

    def loss(x: Value, t: Value) -> Value:
        distance = hlo.abs_(x - t)
        return hlo.select(distance <= delta, distance * distance * 0.5, (distance - 0.5 * delta) * delta)

    return _loss("huber_loss", [self, target], loss, reduction, out, delta=delta)


@lowers(aten.huber_loss_backward.default, dtypes=FLOATING, refuses=_refuses_negative("delta"))
def huber_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, delta: float, out: Spec
) -> list[Value | None]:
    """Gradient of the Huber loss."""

    def slope(x: Value, t: Value) -> Value:
        return x - t if math.isnan(delta) else hlo.clamp(-delta, x - t, delta)

    return _gradient("huber_loss_backward", grad_output, [self, target], slope, reduction, out, delta=delta)


def _weighted(losses: Value, weight: Value | None) -> Value:
    return losses if weight is None else losses * weight


def _refuses_larger_shapes(arguments: Mapping[str, Any]) -> str | None:
    """Refuse shapes unlike the input's: kernels write its shape, and broadcast without axes of size 1."""
    tensors = {name: arguments.get(name) for name in ("self", "target", "grad_output", "weight")}
    shapes = {name: tensor.shape for name, tensor in tensors.items() if tensor is not None}
    inner = [[size for size in shape if size != 1] for name, shape in shapes.items() if name != "weight"]
    try:
        kept = torch.broadcast_shapes(*shapes.values()) == shapes["self"]
        if kept and list(torch.broadcast_shapes(*inner)) == inner[0]:
            return None
    except RuntimeError:  # the shapes do not broadcast at all
        pass
    told = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    return f"its tensors do not broadcast to the shape of self without axes of size 1: {told}"


@lowers(
    aten.binary_cross_entropy.default,
    dtypes=FLOATING,
    values=CROSS_ENTROPY,
    refuses=_refuses_larger_shapes,
)
def binary_cross_entropy(
    self: Value, target: Value, weight: Value | None = None, reduction: int = 1, *, out: Spec
) -> list[Value | None]:
    """``−(target · log(self) + (1 − target) · log(1 − self))``, with logarithms of at least −100."""

    def loss(x: Value, t: Value, weight: Value | None) -> Value:
        yes = hlo.maximum(hlo.log(x), -100.0)
        no = hlo.maximum(hlo.log_plus_one(-x), -100.0)
        return _weighted((t - 1.0) * no - t * yes, weight)

    return _loss("binary_cross_entropy", [self, target, weight], loss, reduction, out)


def _squeezed(x: Value) -> Value:
    return hlo.squeeze(x, [axis for axis, size in enumerate(x.shape) if hlo.same_dim(size, 1)])


@lowers(aten.binary_cross_entropy_backward.default, dtypes=FLOATING, refuses=_refuses_larger_shapes)
def binary_cross_entropy_backward(
    grad_output: Value,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    *,
    out: Spec,
) -> list[Value | None]:
    """Gradient of the binary cross entropy; only the weight is broadcast with its axes of size 1."""

    def kernel(grad: Value, x: Value, t: Value, weight: Value | None) -> Value:
        grad, x, t = map(_squeezed, (grad, x, t))
        t = hlo.broadcast_to(t, x.shape)
        slope = (x - t) / hlo.maximum((1.0 - x) * x, 1e-12)
        change = hlo.reshape(spread(grad, x.shape, reduction) * slope, out.shape)
        return _weighted(change, None if weight is None else hlo.broadcast_to(weight, out.shape))

    inputs = [grad_output, self, target, weight]
    attributes = {"reduction": reduction_name(reduction)}
    return composed("binary_cross_entropy_backward", inputs, kernel, out, attributes)


@lowers(aten.binary_cross_entropy_with_logits.default, dtypes=FLOATING)
def binary_cross_entropy_with_logits(
    self: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: int = 1,
    *,
    out: Spec,
) -> list[Value | None]:
    """Binary cross entropy of ``sigmoid(self)`` without overflow."""

    def loss(x: Value, t: Value, weight: Value | None, pos_weight: Value | None) -> Value:
        # softplus(−x) = −log(sigmoid(x))
        negative = hlo.log_plus_one(hlo.exponential(-hlo.abs_(x))) + hlo.maximum(-x, 0.0)
        if pos_weight is not None:
            negative = negative * ((pos_weight - 1.0) * t + 1.0)
        return _weighted((1.0 - t) * x + negative, weight)

    inputs = [self, target, weight, pos_weight]
    return _loss("binary_cross_entropy_with_logits", inputs, loss, reduction, out)


def _refuses_unsigned(given: Mapping[str, Any]) -> str | None:
    """Refuse unsigned targets: eager PyTorch negates the target in its own dtype."""
    dtype = given["target"].dtype
    return None if dtype.is_signed else f"target of {dtype} has no negative: convert it to a signed dtype"


@lowers(aten.soft_margin_loss.default, dtypes=FLOATING | COMPLEX, refuses=_refuses_unsigned)
def soft_margin_loss(self: Value, target: Value, reduction: int = 1, *, out: Spec) -> list[Value | None]:
    """``log(1 + exp(−target · self))``."""
    return _loss(
        "soft_margin_loss",
        [self, target],
        lambda x, t: hlo.log_plus_one(hlo.exponential(-t * x)),
        reduction,
        out,
    )


@lowers(aten.soft_margin_loss_backward.default, dtypes=FLOATING | COMPLEX, refuses=_refuses_unsigned)
def soft_margin_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, out: Spec
) -> list[Value | None]:
    """Gradient of the soft margin loss."""

    def slope(x: Value, t: Value) -> Value:
        z = hlo.exponential(-t * x)
        return -t * z / (z + 1.0)

    return _gradient("soft_margin_loss_backward", grad_output, [self, target], slope, reduction, out)
