"""Scaled dot-product attention: plain, causal, masked, grouped."""

from __future__ import annotations

from typing import Any

from ...core.roundoff import Stages
from ..descriptor import AttributeSpec, Shape
from .build import FLOATS, alike, broadcast, need, operator, setup

_SCALE = AttributeSpec((float, type(None)), None, doc="factor of the scores; null: 1 / sqrt(last size)")


def _shape(query: Shape, key: Shape, value: Shape, *, enable_gqa: bool = False, **attributes: Any) -> Shape:
    for one in (query, key, value):
        need(len(one) >= 2, f"{list(one)} must be [..., length, features]")
    need(query[-1] == key[-1], f"queries have {query[-1]} features, keys {key[-1]}")
    need(key[-2] == value[-2], f"{key[-2]} keys, but {value[-2]} values")
    heads = key[:-2]
    if enable_gqa:
        need(len(query) > 2 and len(key) > 2, "grouped attention needs a dimension of heads")
        need(key[-3] > 0 and query[-3] % key[-3] == 0, f"{query[-3]} heads are not a multiple of {key[-3]}")
        heads = (*heads[:-1], query[-3])
    return (*broadcast(query[:-2], heads), query[-2], value[-1])


def _masked_shape(query: Shape, key: Shape, value: Shape, mask: Shape, **attributes: Any) -> Shape:
    shape = _shape(query, key, value)
    scores = (*shape[:-1], key[-2])
    need(broadcast(mask, scores) == scores, f"the mask {list(mask)} does not expand to {list(scores)}")
    return shape


OPERATORS = (
    operator(
        "scaled_dot_product_attention",
        "attention",
        "softmax(scale · input0 @ input1ᵀ) @ input2; is_causal hides keys after the query's own position.",
        dtypes=alike(3, FLOATS),
        setups=(
            setup((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4)),
            setup((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3), note="unequal lengths"),
            setup((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), is_causal=True),
            setup((1, 2, 6, 4), (1, 2, 4, 4), (1, 2, 4, 4), is_causal=True, note="unequal lengths"),
            setup((1, 2, 3, 4), (1, 2, 9, 4), (1, 2, 9, 4), is_causal=True, note="unequal lengths"),
            setup((3, 4, 8), (3, 5, 8), (3, 5, 8), scale=0.5),
            setup((1, 4, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), enable_gqa=True),
            setup((1, 6, 4, 4), (1, 2, 4, 4), (1, 2, 4, 4), enable_gqa=True, is_causal=True),
            setup((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), note="size 1"),
            setup((0, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3, 4), note="empty"),
        ),
        shapes=_shape,
        torch="torch.nn.functional.scaled_dot_product_attention",
        attributes={
            "is_causal": AttributeSpec(bool, False, doc="whether later keys are hidden"),
            "scale": _SCALE,
            "enable_gqa": AttributeSpec(bool, False, doc="whether several query heads share a key head"),
        },
        rounding=Stages(),
        tags=("reduction", "differentiable"),
        aliases=("query", "key", "value"),
    ),
    operator(
        "masked_attention",
        "attention",
        "Attention with a mask: True keeps a key, a number is added to its score. No key at all gives 0.",
        dtypes=(*alike(3, FLOATS, "bool"), *alike(4, FLOATS)),
        setups=(
            setup((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), (5, 5)),
            setup((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 3), (2, 2, 5, 7)),
            setup((2, 2, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4), (2, 1, 1, 7), note="broadcast"),
            setup((1, 2, 6, 4), (1, 2, 4, 4), (1, 2, 4, 4), (6, 1), note="broadcast"),
            setup((3, 4, 8), (3, 5, 8), (3, 5, 8), (4, 5), scale=0.5),
            setup((2, 3, 4), (2, 2, 4), (2, 2, 4), (3, 2), note="few keys"),
            setup((1, 1, 1, 1), (1, 1, 1, 1), (1, 1, 1, 1), (1, 1), note="size 1"),
            setup((0, 2, 3, 4), (0, 2, 3, 4), (0, 2, 3, 4), (3, 3), note="empty"),
        ),
        shapes=_masked_shape,
        torch="torch.nn.functional.scaled_dot_product_attention",
        attributes={"scale": _SCALE},
        rounding=Stages(),
        tags=("reduction", "differentiable"),
        aliases=("query", "key", "value", "attn_mask"),
    ),
)
