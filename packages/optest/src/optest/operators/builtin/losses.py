"""Losses of ``torch.nn.functional``, with its names, defaults and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.roundoff import Stages
from ..descriptor import AttributeSpec, DTypes, OperatorDescriptor, Setup, Shape
from ..domain import ANY, Domain
from .build import FLOATS, alike, axis, broadcast, need, operator, setup

_REDUCTION = AttributeSpec(
    str, "mean", choices=("none", "mean", "sum"), doc="what becomes of the single losses"
)
_UNIT = Domain(low=0.02, high=0.98)
_SIGNS = Domain(low=-1, high=1, integers=True, nonzero=True)
_SETUPS = (
    setup((4, 7), (4, 7)),
    setup((4, 7), (4, 7), reduction="sum"),
    setup((4, 7), (4, 7), reduction="none"),
    setup((2, 3, 4, 5), (2, 3, 4, 5)),
    setup((129,), (129,), reduction="sum", note="odd length"),
    setup((1,), (1,), note="size 1"),
    setup((), (), note="0-d"),
    setup((0, 3), (0, 3), reduction="sum", note="empty"),
    setup((0, 3), (0, 3), note="mean of nothing"),
)


def _equal_shape(prediction: Shape, target: Shape, *, reduction: str, **attributes: Any) -> Shape:
    need(prediction == target, f"{list(prediction)} and {list(target)} must be equal")
    return prediction if reduction == "none" else ()


def _loss(
    name: str,
    doc: str,
    *,
    prediction: Domain = ANY,
    target: Domain = ANY,
    attributes: Mapping[str, AttributeSpec] | None = None,
    variants: tuple[dict[str, Any], ...] = (),
    nan: bool = True,
) -> OperatorDescriptor:
    """Describe an elementwise loss of two equal shapes; ``variants`` are attributes for further setups."""
    return operator(
        name,
        "losses",
        doc,
        dtypes=alike(2, FLOATS),
        setups=(*_SETUPS, *(setup((5, 6), (5, 6), **one) for one in variants)),
        shapes=_equal_shape,
        torch=f"torch.nn.functional.{name}",
        attributes={**(attributes or {}), "reduction": _REDUCTION},
        domain={"input0": prediction, "input1": target},
        rounding=Stages(),
        tags=("reduction", "differentiable", *(("edge:nan-only",) if nan else ())),
        aliases=("input", "target"),
    )


def _classes_shape(scores: Shape, target: Shape, *, reduction: str, **attributes: Any) -> Shape:
    need(len(scores) >= 1, "scores need a dimension of classes")
    wanted = (scores[0], *scores[2:]) if len(scores) > 1 else ()
    need(target == wanted, f"the classes {list(target)} must be {list(wanted)} for scores of {list(scores)}")
    return target if reduction == "none" else ()


_CLASSES = 5
_CLASS_SETUPS: tuple[Setup, ...] = tuple(
    setup(
        (batch, _CLASSES, *rest) if batch is not None else (_CLASSES,),
        (batch, *rest) if batch is not None else (),
        note=note,
        **attributes,
    )
    for batch, rest, note, attributes in (
        (6, (), "", {}),
        (6, (), "", {"reduction": "none"}),
        (2, (3, 4), "", {"reduction": "sum"}),
        (3, (7,), "", {}),
        (9, (), "", {"ignore_index": 2}),
        (4, (3,), "", {"ignore_index": 0, "reduction": "none"}),
        (1, (), "size 1", {}),
        (None, (), "no batch", {"reduction": "sum"}),
        (0, (), "empty", {"reduction": "sum"}),
    )
)
_IGNORE = AttributeSpec(int, -100, doc="a class that does not count")
_CLASS_DTYPES: tuple[DTypes, ...] = tuple((name, "int64") for name in FLOATS)
_CLASS_DOMAIN = {"input1": Domain(low=0, high=_CLASSES - 1)}


def _cosine_shape(left: Shape, right: Shape, *, dim: int, eps: float) -> Shape:
    shape = broadcast(left, right)
    dim = axis(dim, len(shape))
    return (*shape[:dim], *shape[dim + 1 :])


OPERATORS = (
    _loss("mse_loss", "(input − target)²."),
    _loss("l1_loss", "|input − target|."),
    _loss(
        "smooth_l1_loss",
        "0.5 · d² / beta where d = |input − target| is below beta, else d − 0.5 · beta.",
        attributes={"beta": AttributeSpec(float, 1.0, minimum=0, doc="where it becomes linear")},
        variants=({"beta": 0.5, "reduction": "none"}, {"beta": 3.0}),
    ),
    _loss(
        "huber_loss",
        "0.5 · d² where d = |input − target| is at most delta, else delta · (d − 0.5 · delta).",
        attributes={"delta": AttributeSpec(float, 1.0, minimum=0, doc="where it becomes linear")},
        variants=({"delta": 0.5, "reduction": "none"}, {"delta": 3.0}),
    ),
    _loss(
        "binary_cross_entropy",
        "−target · log(input) − (1 − target) · log(1 − input), each logarithm at least −100.",
        prediction=_UNIT,
        target=Domain(low=0.0, high=1.0),
        nan=False,
    ),
    _loss(
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy of sigmoid(input), without overflow.",
        target=Domain(low=0.0, high=1.0),
    ),
    _loss(
        "soft_margin_loss",
        "log(1 + exp(−target · input)).",
        target=_SIGNS,
    ),
    _loss(
        "hinge_embedding_loss",
        "input where target is 1, max(0, margin − input) where it is −1.",
        target=_SIGNS,
        attributes={"margin": AttributeSpec(float, 1.0, doc="the margin")},
        variants=({"margin": 0.25, "reduction": "none"}, {"margin": 3.0}),
    ),
    _loss(
        "poisson_nll_loss",
        "exp(input) − target · input, or input − target · log(input + eps) unless log_input.",
        prediction=Domain(low=0.05, high=1.5),
        target=Domain(low=0, high=3, integers=True),
        attributes={
            "log_input": AttributeSpec(bool, True, doc="whether the input is a logarithm"),
            "full": AttributeSpec(bool, False, doc="whether to add Stirling's term for targets above 1"),
            "eps": AttributeSpec(float, 1e-8, minimum=0, doc="added before the logarithm"),
        },
        variants=(
            {"log_input": False},
            {"full": True, "reduction": "none"},
            {"log_input": False, "eps": 0.5},
        ),
    ),
    _loss(
        "kl_div",
        "target · (log(target) − input), or exp(target) · (target − input) if log_target; batchmean divides "
        "the sum by the first size.",
        prediction=Domain(low=-4.0, high=0.0),
        target=Domain(low=0.05, high=3.0),
        attributes={"log_target": AttributeSpec(bool, False, doc="whether the target is a logarithm")},
        variants=({"log_target": True}, {"log_target": True, "reduction": "none"}),
        nan=False,
    ),
    operator(
        "nll_loss",
        "losses",
        "−input[target], by class (dimension 1); mean is over the targets that count.",
        dtypes=_CLASS_DTYPES,
        setups=_CLASS_SETUPS,
        shapes=_classes_shape,
        torch="torch.nn.functional.nll_loss",
        attributes={"ignore_index": _IGNORE, "reduction": _REDUCTION},
        domain=_CLASS_DOMAIN,
        rounding=Stages(),
        tags=("reduction", "index", "differentiable"),
        aliases=("input", "target"),
    ),
    operator(
        "cross_entropy",
        "losses",
        "nll_loss of log_softmax over the classes (dimension 1), with label smoothing.",
        dtypes=_CLASS_DTYPES,
        setups=(
            *_CLASS_SETUPS,
            setup((6, _CLASSES), (6,), label_smoothing=0.25),
            setup((3, _CLASSES, 4), (3, 4), label_smoothing=0.5, reduction="none"),
            setup((9, _CLASSES), (9,), label_smoothing=0.1, ignore_index=1),
        ),
        shapes=_classes_shape,
        torch="torch.nn.functional.cross_entropy",
        attributes={
            "ignore_index": _IGNORE,
            "reduction": _REDUCTION,
            "label_smoothing": AttributeSpec(
                float, 0.0, minimum=0, doc="share that goes to all classes alike"
            ),
        },
        domain=_CLASS_DOMAIN,
        rounding=Stages(),
        tags=("reduction", "index", "differentiable"),
        aliases=("input", "target"),
    ),
    operator(
        "cosine_similarity",
        "losses",
        "The cosine of the angle along dim; each norm is eps at least.",
        dtypes=alike(2, FLOATS),
        setups=(
            setup((4, 7), (4, 7)),
            setup((4, 7), (4, 7), dim=0),
            setup((2, 5, 3), (2, 5, 3)),
            setup((2, 3, 9), (3, 9), dim=-1, note="broadcast"),
            setup((6, 5), (1, 5), note="broadcast"),
            setup((4, 7), (4, 7), eps=5.0, note="eps above the norm"),
            setup((3, 1), (3, 1), note="size 1"),
            setup((33,), (33,), dim=0, note="vector"),
            setup((0, 4), (0, 4), note="empty"),
        ),
        shapes=_cosine_shape,
        torch="torch.nn.functional.cosine_similarity",
        attributes={
            "dim": AttributeSpec(int, 1, doc="the dimension"),
            "eps": AttributeSpec(float, 1e-8, minimum=0, doc="least norm"),
        },
        rounding=Stages(),
        tags=("reduction", "edge:nan-only", "differentiable"),
    ),
)
