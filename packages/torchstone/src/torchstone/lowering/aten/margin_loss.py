"""Margin losses over classes, and their gradients.

Not here: pointwise losses, the soft margin loss among them (``loss``),
negative log likelihood (``class_loss``).

Each is a composite. Scores are ``(N, C)`` or ``(C,)``.
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import FLOAT32, FLOAT64, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import NEAREST_CLASS, NO_CLASS, IndexRule, classes
from ..common import count_of, fill, restore
from ..composites import Specs, composed
from ..misfits import Arguments
from ..registry import Spec, lowers
from .loss import Reduction, reduced, reduction_name, spread

aten = namespace("aten")

WIDE = frozenset({FLOAT32, FLOAT64})


def _rows(x: Value) -> Value:
    """Reshape to ``(N, C)``: a single sample has ``(C,)``, and a 0-d value is one class."""
    return x if x.rank == 2 else hlo.reshape(x, (1, x.numel))


def _over_classes(x: Value, scores: Value) -> Value:
    """Divide the value of each row by the number of classes."""
    return x / fill(count_of(scores, [1], x.dtype), x.shape)


def _attributes(p: Any, margin: Any, reduction: int) -> dict[str, hlo.Attribute]:
    return {"p": int(p), "margin": float(margin), "reduction": reduction_name(reduction)}


def _refuses_surplus(given: Arguments) -> str | None:
    """Refuse several gradients of a reduced loss, which is one number: kernels read only the first."""
    shape = given["grad_output"].shape
    if given.get("reduction", 1) == Reduction.NONE or all(size == 1 for size in shape):
        return None
    return f"grad_output has shape {list(shape)}, and a reduced loss is one number"


def _classes(target: Value) -> Value:
    """Convert the target to integers: eager PyTorch accepts any dtype if the target is empty."""
    return hlo.convert(target, INT64)


def _violations(
    scores: Value, target: Value, weight: Value | None, margin: float
) -> tuple[Value, Value, Value]:
    """Return each class's violation of ``margin``, whether it is the target, and the weight of each row.

    The violation is how far the score exceeds that of the target minus ``margin``.
    """
    here = hlo.eq(hlo.index_of(scores, 1), restore(target, scores.shape, [1]))
    own = hlo.reduce_sum(hlo.select(here, scores, 0.0), [1])
    excess = scores - restore(own, scores.shape, [1]) + margin
    factor = hlo.full(own.shape, 1, own.dtype) if weight is None else hlo.take(weight, target, 0)
    return hlo.select(~here & (excess > 0.0), excess, 0.0), here, factor  # NaN does not count as a violation


@lowers(aten.multi_margin_loss.default, dtypes=WIDE, indices=IndexRule("target", classes, NO_CLASS))
def multi_margin_loss(
    self: Value,
    target: Value,
    p: Any = 1,
    margin: Any = 1,
    weight: Value | None = None,
    reduction: int = 1,
    *,
    out: Spec,
) -> list[Value | None]:
    """Mean over classes of ``max(0, margin − self[target] + self)^p``, without the target class."""

    def kernel(x: Value, target: Value, weight: Value | None) -> Value:
        scores = _rows(x)
        chosen = _classes(hlo.reshape(target, scores.shape[:1]))
        excess, _, factor = _violations(scores, chosen, weight, float(margin))
        powers = excess if p == 1 else excess * excess
        weighted = hlo.select(excess > 0.0, powers * restore(factor, powers.shape, [1]), 0.0)
        losses = _over_classes(hlo.reduce_sum(weighted, [1]), scores)
        return reduced(losses, reduction)

    attributes: dict[str, hlo.Attribute] = {
        "p": int(p),
        "margin": float(margin),
        "reduction": reduction_name(reduction),
    }
    return composed("multi_margin_loss", [self, target, weight], kernel, out, attributes)


@lowers(aten.multi_margin_loss_backward.default, dtypes=WIDE, refuses=_refuses_surplus)
def multi_margin_loss_backward(
    grad_output: Value,
    self: Value,
    target: Value,
    p: Any,
    margin: Any,
    weight: Value | None = None,
    reduction: int = 1,
    *,
    out: Spec,
) -> list[Value | None]:
    """Gradient of :func:`multi_margin_loss`: each violation pushes its class down and the target up."""

    def kernel(grad: Value, x: Value, target: Value, weight: Value | None) -> Value:
        scores = _rows(x)
        excess, here, factor = _violations(
            scores, hlo.reshape(target, scores.shape[:1]), weight, float(margin)
        )
        slope = hlo.full_like(excess, 1) if p == 1 else excess * 2.0
        slope = slope * restore(_over_classes(factor, scores), scores.shape, [1])
        slope = hlo.select(excess > 0.0, slope, 0.0)  # a weight may be NaN
        pull = restore(hlo.reduce_sum(slope, [1]), scores.shape, [1])
        total = spread(grad, scores.shape[:1], reduction)
        return hlo.select(here, -pull, slope) * restore(total, scores.shape, [1])

    attributes: dict[str, hlo.Attribute] = {
        "p": int(p),
        "margin": float(margin),
        "reduction": reduction_name(reduction),
    }
    return composed(
        "multi_margin_loss_backward", [grad_output, self, target, weight], kernel, out, attributes
    )


def _ended(target: Value) -> Value:
    """True for the places of each row that hold no target: those from the first −1 on."""
    shape = (*target.shape, target.shape[1])
    not_after = hlo.iota(shape, 2, target.dtype) <= hlo.iota(shape, 1, target.dtype)
    return hlo.reduce_or(not_after & restore(target < 0, shape, [1]), [2])


def _matches(target: Value) -> Value:
    """Return ``(N, C, C)`` bools: whether place s (axis 1) of the targets holds class c (last axis)."""
    shape = (*target.shape, target.shape[1])
    named = hlo.eq(restore(target, shape, [2]), hlo.iota(shape, 2, target.dtype))
    return named & restore(~_ended(target), shape, [2])


def _marked(target: Value, like: Value) -> Value:
    """Return 1 for each class that is a target of the row, else 0."""
    return hlo.convert(hlo.reduce_or(_matches(target), [1]), like.dtype)


def _pairs(scores: Value, target: Value, is_target: Value) -> tuple[Value, Value]:
    """Return the violation for each row, target place and class, ``(N, C, C)``, and whether it counts."""
    shape = (*scores.shape, scores.shape[1])
    ended = _ended(target)
    own = hlo.take_along(scores, hlo.select(ended, 0, target), 1)
    excess = restore(scores, shape, [1]) - restore(own, shape, [2]) + 1.0
    counts = restore(~ended, shape, [2]) & restore(hlo.eq(is_target, 0.0), shape, [1]) & (excess > 0.0)
    return excess, counts


@lowers(
    aten.multilabel_margin_loss_forward.default,
    dtypes=WIDE,
    indices=IndexRule("target", classes, NEAREST_CLASS, exempt=-1),
)
def multilabel_margin_loss(self: Value, target: Value, reduction: int, out: Specs) -> list[Value | None]:
    """Mean over classes of ``max(0, 1 − self[target] + self)`` over all targets and all other classes."""

    def kernel(x: Value, target: Value) -> tuple[Value, Value]:
        scores, targets = _rows(x), _classes(_rows(target))
        marked = _marked(targets, scores)
        excess, counts = _pairs(scores, targets, marked)
        losses = _over_classes(hlo.reduce_sum(hlo.select(counts, excess, 0.0), [1, 2]), scores)
        loss = reduced(losses, reduction)
        return loss if out[0] is None else hlo.reshape(loss, out[0].shape), marked

    attributes: dict[str, hlo.Attribute] = {"reduction": reduction_name(reduction)}
    return composed("multilabel_margin_loss", [self, target], kernel, out, attributes)


@lowers(aten.multilabel_margin_loss_backward.default, dtypes=WIDE, refuses=_refuses_surplus)
def multilabel_margin_loss_backward(
    grad_output: Value, self: Value, target: Value, reduction: int, is_target: Value, out: Spec
) -> list[Value | None]:
    """Gradient of :func:`multilabel_margin_loss`."""

    def kernel(grad: Value, x: Value, target: Value, is_target: Value) -> Value:
        scores = _rows(x)
        targets = _rows(target)
        _, counts = _pairs(scores, targets, _rows(is_target))
        ones = hlo.convert(counts, x.dtype)
        pushed = hlo.reduce_sum(ones, [1])
        violated = restore(hlo.reduce_sum(ones, [2]), counts.shape, [2])
        pulled = hlo.reduce_sum(hlo.select(_matches(targets), violated, 0.0), [1])
        total = _over_classes(spread(grad, scores.shape[:1], reduction), scores)
        return (pushed - pulled) * restore(total, scores.shape, [1])

    attributes: dict[str, hlo.Attribute] = {"reduction": reduction_name(reduction)}
    inputs = [grad_output, self, target, is_target]
    return composed("multilabel_margin_loss_backward", inputs, kernel, out, attributes)
