"""Losses that PyTorch composes from other operators, kept as one operator.

Each is a composite whose decomposition is PyTorch's own expansion. They occur only
in exported graphs, because autograd expands them first. 16-bit floats are
computed in float32.
"""

from __future__ import annotations

from ...dtypes import FLOATING, STANDARD, UNSIGNED
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import NEAREST_CLASS, IndexRule, classes
from ..composites import Expand, expanded
from ..own import own
from ..registry import Spec, lowers
from .loss import Reduction, reduction_name

aten = namespace("aten")


@lowers(aten.cross_entropy_loss.default, dtypes=FLOATING, indices=IndexRule("target", classes, NEAREST_CLASS))
def cross_entropy_loss(
    self: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    label_smoothing: float,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """``−log softmax`` at the target classes, or its mean weighted by target probabilities."""
    attributes = {
        "reduction": reduction_name(reduction),
        "ignore_index": ignore_index,
        "label_smoothing": float(label_smoothing),
    }
    return expanded("cross_entropy_loss", [self, target, weight], expand_wide, out, attributes)


@lowers(aten.l1_loss.default, dtypes=STANDARD)
def l1_loss(self: Value, target: Value, reduction: int, expand_wide: Expand, out: Spec) -> list[Value]:
    """``|self − target|``."""
    return expanded("l1_loss", [self, target], expand_wide, out, {"reduction": reduction_name(reduction)})


@lowers(aten.kl_div.default, dtypes=STANDARD)
def kl_div(
    self: Value, target: Value, reduction: int, log_target: bool, expand_wide: Expand, out: Spec
) -> list[Value]:
    """``target · (log target − self)``. With ``log_target``, ``target`` holds logarithms."""
    attributes = {"reduction": reduction_name(reduction), "log_target": log_target}
    return expanded("kl_div", [self, target], expand_wide, out, attributes)


@lowers(aten.triplet_margin_loss.default, dtypes=STANDARD)
def triplet_margin_loss(
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = Reduction.MEAN,
    *,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """``max(d(anchor, positive) − d(anchor, negative) + margin, 0)``, with the ``p``-norm as ``d``."""
    attributes = {
        "reduction": reduction_name(reduction),
        "margin": float(margin),
        "p": float(p),
        "epsilon": float(eps),
        "swap": swap,
    }
    return expanded("triplet_margin_loss", [anchor, positive, negative], expand_wide, out, attributes)


@lowers(aten.cosine_embedding_loss.default, dtypes=STANDARD | UNSIGNED)
def cosine_embedding_loss(
    input1: Value, input2: Value, target: Value, margin: float, reduction: int, expand_wide: Expand, out: Spec
) -> list[Value]:
    """``1 − cosine`` for pairs with target 1, ``max(cosine − margin, 0)`` for pairs with target −1."""
    attributes = {"reduction": reduction_name(reduction), "margin": float(margin)}
    return expanded("cosine_embedding_loss", [input1, input2, target], expand_wide, out, attributes)


@lowers(aten.margin_ranking_loss.default, dtypes=STANDARD)
def margin_ranking_loss(
    input1: Value, input2: Value, target: Value, margin: float, reduction: int, expand_wide: Expand, out: Spec
) -> list[Value]:
    """``max(−target · (input1 − input2) + margin, 0)``, where ``target`` is 1 or −1."""
    attributes = {"reduction": reduction_name(reduction), "margin": float(margin)}
    return expanded("margin_ranking_loss", [input1, input2, target], expand_wide, out, attributes)


@lowers(aten.hinge_embedding_loss.default, dtypes=STANDARD)
def hinge_embedding_loss(
    self: Value, target: Value, margin: float, reduction: int, expand_wide: Expand, out: Spec
) -> list[Value]:
    """``self`` where ``target`` is 1, ``max(margin − self, 0)`` where it is −1."""
    attributes = {"reduction": reduction_name(reduction), "margin": float(margin)}
    return expanded("hinge_embedding_loss", [self, target], expand_wide, out, attributes)


@lowers(aten.poisson_nll_loss.default, dtypes=STANDARD | UNSIGNED)
def poisson_nll_loss(
    input: Value,
    target: Value,
    log_input: bool,
    full: bool,
    eps: float,
    reduction: int,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """Negative log likelihood of Poisson counts; ``full`` adds Stirling's term."""
    attributes = {
        "reduction": reduction_name(reduction),
        "log_input": log_input,
        "full": full,
        "epsilon": float(eps),
    }
    return expanded("poisson_nll_loss", [input, target], expand_wide, out, attributes)


@lowers(own.gaussian_nll_loss.default, dtypes=STANDARD)
def gaussian_nll_loss(
    input: Value,
    target: Value,
    var: Value,
    full: bool,
    eps: float,
    reduction: str,
    expand_wide: Expand,
    out: Spec,
) -> list[Value]:
    """Negative log likelihood of a normal distribution; variances are at least ``eps``."""
    attributes = {"reduction": reduction, "full": full, "epsilon": float(eps)}
    return expanded("gaussian_nll_loss", [input, target, var], expand_wide, out, attributes)


@lowers(own.multilabel_soft_margin_loss.default, dtypes=FLOATING)
def multilabel_soft_margin_loss(
    input: Value, target: Value, weight: Value | None, reduction: str, expand_wide: Expand, out: Spec
) -> list[Value]:
    """Binary cross entropy of logits, averaged over the classes."""
    attributes = {"reduction": reduction}
    return expanded("multilabel_soft_margin_loss", [input, target, weight], expand_wide, out, attributes)
