"""Activations, with the names and parameters of ``torch.nn.functional``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..descriptor import REQUIRED, AttributeSpec, OperatorDescriptor, Shape
from .build import (
    DIM,
    FLOATS,
    INTEGERS,
    UNARY_SETUPS,
    alike,
    axis,
    identity,
    need,
    operator,
    setup,
)


def _activation(
    name: str,
    doc: str,
    attributes: Mapping[str, AttributeSpec] | None = None,
    *variants: Mapping[str, Any],
    dtypes: tuple[str, ...] = FLOATS,
    infinite: bool = True,
    tags: tuple[str, ...] = (),
    torch: str = "",
) -> OperatorDescriptor:
    """Describe an elementwise function; all setups get required attributes from the first of ``variants``."""
    required = variants[0] if variants and _required(attributes) else {}
    return operator(
        name,
        "activation",
        doc,
        dtypes=alike(1, dtypes),
        setups=(
            *(setup(*one.shapes.values(), note=one.note, **required) for one in UNARY_SETUPS),
            *(setup((6, 35), **one) for one in variants),
        ),
        shapes=identity,
        torch=torch or f"torch.nn.functional.{name}",
        attributes=attributes,
        tags=("elementwise", "differentiable", "edge:nan" if infinite else "edge:nan-only", *tags),
    )


def _required(attributes: Mapping[str, AttributeSpec] | None) -> bool:
    return any(one.default is REQUIRED for one in (attributes or {}).values())


def _number(default: float, doc: str) -> AttributeSpec:
    return AttributeSpec(float, default, doc=doc)


def _glu_shape(shape: Shape, *, dim: int) -> Shape:
    need(bool(shape), "a scalar cannot be split in two halves")
    dim = axis(dim, len(shape))
    need(shape[dim] % 2 == 0, f"size {shape[dim]} of dim {dim} is odd; it must split in two halves")
    return (*shape[:dim], shape[dim] // 2, *shape[dim + 1 :])


def _prelu_shape(shape: Shape, weight: Shape) -> Shape:
    channels = shape[1] if len(shape) > 1 else 1
    need(weight in ((1,), (channels,)), f"the weight {list(weight)} must be [1] or [{channels}]")
    return shape


OPERATORS = (
    _activation("relu", "max(x, 0); NaN stays.", dtypes=FLOATS + INTEGERS, tags=("bounded", "exact")),
    _activation("relu6", "x between 0 and 6.", tags=("exact",)),
    _activation(
        "leaky_relu",
        "x above 0, else negative_slope · x.",
        {"negative_slope": _number(0.01, "factor below 0")},
        {"negative_slope": 0.3},
        {"negative_slope": -0.5},
    ),
    _activation(
        "elu",
        "x above 0, else alpha · (exp(x) − 1).",
        {"alpha": _number(1.0, "scale below 0")},
        {"alpha": 0.5},
    ),
    _activation("selu", "scale · elu(x) with the two constants that keep mean and variance."),
    _activation(
        "celu",
        "x above 0, else alpha · (exp(x / alpha) − 1).",
        {"alpha": _number(1.0, "scale below 0")},
        {"alpha": 2.0},
    ),
    _activation(
        "gelu",
        "x · Φ(x), or its tanh approximation.",
        {"approximate": AttributeSpec(str, "none", choices=("none", "tanh"), doc="the formula")},
        {"approximate": "tanh"},
        infinite=False,  # PyTorch's own kernels disagree about +inf
    ),
    _activation("silu", "x · sigmoid(x)."),
    _activation("mish", "x · tanh(softplus(x))."),
    _activation("sigmoid", "1 / (1 + exp(−x)).", torch="torch.sigmoid"),
    _activation("tanh", "The hyperbolic tangent.", torch="torch.tanh"),
    _activation("logsigmoid", "log(sigmoid(x)), without overflow."),
    _activation(
        "softplus",
        "log(1 + exp(beta · x)) / beta; x itself where beta · x is above threshold.",
        {"beta": _number(1.0, "sharpness"), "threshold": _number(20.0, "where it becomes linear")},
        {"beta": 2.0},
        {"beta": 0.5, "threshold": 1.0},
    ),
    _activation("softsign", "x / (1 + |x|)."),
    _activation("tanhshrink", "x − tanh(x)."),
    _activation(
        "hardtanh",
        "x between min_val and max_val; NaN stays.",
        {"min_val": _number(-1.0, "lower limit"), "max_val": _number(1.0, "upper limit")},
        {"min_val": -2.0, "max_val": 0.5},
        tags=("exact",),
    ),
    _activation("hardsigmoid", "relu6(x + 3) / 6."),
    _activation("hardswish", "x · relu6(x + 3) / 6."),
    _activation(
        "softshrink",
        "x moved towards 0 by lambd, and 0 within.",
        {"lambd": _number(0.5, "distance")},
        {"lambd": 1.25},
    ),
    _activation(
        "hardshrink",
        "0 within ±lambd, else x.",
        {"lambd": _number(0.5, "threshold")},
        {"lambd": 1.25},
        tags=("exact",),
    ),
    _activation(
        "threshold",
        "x above threshold, else value.",
        {
            "threshold": AttributeSpec(float, doc="what a value must exceed to stay"),
            "value": AttributeSpec(float, doc="what takes the place of the others"),
        },
        {"threshold": 0.5, "value": -1.0},
        {"threshold": -1.0, "value": 3.0},
        tags=("exact",),
    ),
    operator(
        "prelu",
        "activation",
        "x above 0, else weight · x, with one weight or one per channel (dimension 1).",
        dtypes=alike(2, FLOATS),
        setups=(
            setup((4, 7), (1,)),
            setup((4, 7), (7,)),
            setup((2, 3, 4, 5), (3,)),
            setup((2, 3, 9), (1,)),
            setup((11,), (1,), note="odd length"),
            setup((1,), (1,), note="size 1"),
            setup((), (1,), note="0-d"),
            setup((0, 3), (3,), note="empty"),
        ),
        shapes=_prelu_shape,
        torch="torch.nn.functional.prelu",
        tags=("differentiable", "edge:nan"),
        aliases=("input", "weight"),
    ),
    operator(
        "glu",
        "activation",
        "The first half along dim times the sigmoid of the second.",
        dtypes=alike(1, FLOATS),
        setups=(
            setup((4, 8)),
            setup((6, 5), dim=0),
            setup((4, 6), dim=0),
            setup((2, 4, 3), dim=1),
            setup((2, 4, 3), dim=-2),
            setup((66,), note="odd half"),
            setup((2,), note="size 1"),
            setup((0, 4), note="empty"),
            setup((3, 0), note="empty"),
        ),
        shapes=_glu_shape,
        torch="torch.nn.functional.glu",
        attributes={"dim": AttributeSpec(int, -1, doc=DIM.doc)},
        tags=("differentiable", "edge:nan"),
    ),
)
