"""Losses that look up each sample's class, and their gradients.

Not here: pointwise losses (``loss``), log-softmax, CTC.

Each is a composite; 16-bit floats are computed in float32. Classes lie along
axis 1 of the scores (axis 0 of a single sample). A class index out of range is an
error in eager PyTorch and undefined here.
"""

from __future__ import annotations

from collections.abc import Sequence

from ... import hlo
from ...dtypes import FLOATING
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import NEAREST_CLASS, IndexRule, classes
from ..composites import Specs, composed
from ..registry import Spec, lowers
from .loss import Reduction, reduction_name

aten = namespace("aten")


def _class_axis(scores: Value) -> int:
    return min(1, scores.rank - 1)


def _attributes(reduction: int, ignore_index: int) -> dict[str, hlo.Attribute]:
    return {"reduction": reduction_name(reduction), "ignore_index": ignore_index}


def _class_weights(target: Value, valid: Value, weight: Value | None, like: Value) -> Value:
    """Return the weight of each target's class; 0 where the target is ignored."""
    ones = hlo.full(target.shape, 1, like.dtype)
    chosen = ones if weight is None else hlo.take(weight, hlo.select(valid, target, 0), 0)
    return hlo.select(valid, chosen, 0.0)


@lowers(
    aten.nll_loss_forward.default,
    aten.nll_loss2d_forward.default,
    dtypes=FLOATING,
    indices=IndexRule("target", classes, NEAREST_CLASS),
)
def nll_loss(
    self: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int, out: Specs
) -> list[Value | None]:
    """Minus the score of the target class, times its weight; also returns the sum of the weights."""

    def kernel(x: Value, target: Value, weight: Value | None) -> Sequence[Value]:
        axis = _class_axis(x)
        valid = hlo.ne(target, ignore_index)
        place = hlo.expand_dims(hlo.select(valid, target, 0), [axis])
        chosen = hlo.squeeze(hlo.take_along(x, place, axis), [axis])
        weights = _class_weights(target, valid, weight, x)
        # Use select, not multiplication: an ignored score may be infinite.
        losses = hlo.select(valid, -chosen * weights, 0.0)
        axes = list(range(losses.rank))
        total = hlo.reduce_sum(weights, axes)
        if reduction == Reduction.NONE and axes:
            return losses, hlo.zeros_like(total)
        result = hlo.reduce_sum(losses, axes)
        return (result / total if reduction == Reduction.MEAN else result), total

    attributes: dict[str, hlo.Attribute] = {
        "reduction": reduction_name(reduction),
        "ignore_index": ignore_index,
    }
    return composed("nll_loss", [self, target, weight], kernel, out, attributes)


@lowers(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default, dtypes=FLOATING)
def nll_loss_backward(
    grad_output: Value,
    self: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
    out: Spec,
) -> list[Value | None]:
    """Gradient of the negative log likelihood: minus the weight at each target class, 0 elsewhere."""

    def kernel(grad: Value, x: Value, target: Value, weight: Value | None, total: Value) -> Value:
        axis = _class_axis(x)
        valid = hlo.ne(target, ignore_index)
        if reduction == Reduction.MEAN:
            grad = grad / hlo.reshape(total, grad.shape)
        if target.rank == 0:
            grad = hlo.reshape(grad, ())  # it has one element but may have any rank
        slope = -hlo.broadcast_to(grad, target.shape) * _class_weights(target, valid, weight, x)
        kept = [i for i in range(x.rank) if i != axis]
        here = hlo.eq(hlo.index_of(x, axis), hlo.broadcast_in_dim(target, x.shape, kept))
        here = here & hlo.broadcast_in_dim(valid, x.shape, kept)
        return hlo.select(here, hlo.broadcast_in_dim(slope, x.shape, kept), 0.0)

    attributes: dict[str, hlo.Attribute] = {
        "reduction": reduction_name(reduction),
        "ignore_index": ignore_index,
    }
    inputs = [grad_output, self, target, weight, total_weight]
    return composed("nll_loss_backward", inputs, kernel, out, attributes)
