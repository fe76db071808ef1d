"""Samples of ``lowering.aten.attention``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torchstone.torch_internals.operators import namespace

from . import Make, Sample, samples

aten = namespace("aten")
own = torch.ops.torchstone
SMALL = {"low": -2, "high": 2}


def triple(
    make: Make, *lead: int, queries: int = 3, keys: int = 5, width: int = 4
) -> tuple[torch.Tensor, ...]:
    """Query, key and value with equal leading axes."""
    return (
        make(*lead, queries, width, **SMALL),
        make(*lead, keys, width, **SMALL),
        make(*lead, keys, width, **SMALL),
    )


def additive(make: Make, rows: int = 3, columns: int = 5) -> torch.Tensor:
    """An additive mask that hides some keys, all of them in its second row."""
    mask = make(rows, columns, **SMALL)
    mask[0, 1] = mask[1] = float("-inf")
    return mask


@samples(aten.scaled_dot_product_attention.default)
def _whole(make: Make) -> Iterator[Sample]:
    visible = torch.tensor([[True, False, True, True, False], [True] * 5, [False] * 4 + [True]])
    hidden = torch.tensor([[True, False, True, True, False], [False] * 5, [True] * 5])
    yield Sample(triple(make, 2, 2))
    yield Sample((*triple(make, 2, 2), None, 0.0, True), note="causal, more keys than queries")
    yield Sample((*triple(make, 2, 2), hidden), note="boolean mask, a row without keys")
    if make.is_float:
        yield Sample((*triple(make, 2, 2), additive(make)), note="additive mask, a row without keys")
    yield Sample((*triple(make, 2), visible), {"scale": 0.3}, note="3-d, scale")
    yield Sample(triple(make), note="2-d")
    yield Sample((*triple(make, 2, 2, queries=5, keys=3), None, 0.0, True), note="causal, fewer keys")
    q, k, v = make(2, 4, 3, 4, **SMALL), make(2, 2, 5, 4, **SMALL), make(2, 2, 5, 4, **SMALL)
    yield Sample((q, k, v), {"enable_gqa": True}, note="grouped queries")
    yield Sample((make(2, 2, 3, 4), make(2, 2, 5, 4), make(2, 2, 5, 6)), note="values of another width")
    yield Sample((make(1, 2, 3, 4), make(2, 2, 5, 4), make(2, 2, 5, 4)), note="broadcast batch")
    q, k, v = (make(2, 3, 2, 4, **SMALL).transpose(1, 2) for _ in range(3))
    yield Sample((q, k, v), note="non-contiguous")
    yield Sample((make(0, 2, 3, 4), make(0, 2, 5, 4), make(0, 2, 5, 4)), note="empty")


def flash_cases(make: Make) -> Iterator[tuple[tuple[torch.Tensor, ...], bool, dict[str, Any], str]]:
    if not make.is_float:
        return
    yield triple(make, 2, 2), False, {}, ""
    yield triple(make, 2, 2), True, {}, "causal, more keys than queries"
    yield triple(make, 2, 2), False, {"attn_mask": additive(make)}, "a row without keys"
    yield triple(make, 2, 2, queries=5, keys=3), True, {"scale": 0.3}, "causal, fewer keys, scale"
    yield triple(make, 1, 1, queries=1, keys=1, width=1), False, {}, "size 1"


@samples(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash(make: Make) -> Iterator[Sample]:
    for qkv, causal, options, note in flash_cases(make):
        yield Sample((*qkv, 0.0, causal), options, note=note)


@samples(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, gradient=False)
def _flash_backward(make: Make) -> Iterator[Sample]:
    for qkv, causal, options, note in flash_cases(make):
        result, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(*qkv, 0.0, causal, **options)
        yield Sample((make(*result.shape), *qkv, result, logsumexp, 0.0, causal), options, note=note)


@samples(own.multi_head_attention.default)
def _multi_head(make: Make) -> Iterator[Sample]:
    width, heads = 8, 2

    def random(*shape: int) -> torch.Tensor:
        return make(*shape, low=-1, high=1)

    query, context = random(3, 2, width), random(5, 2, width)
    projection, bias = random(3 * width, width), random(3 * width)
    padding = torch.tensor([[False, False, False, True, True], [False] * 4 + [True]])
    later = torch.ones(3, 3, dtype=torch.bool).triu(1)
    causal = later
    if make.is_float:
        causal = torch.zeros(3, 3, dtype=make.dtype).masked_fill(later, float("-inf"))

    def sample(
        key: torch.Tensor,
        value: torch.Tensor,
        projections: tuple[torch.Tensor | None, ...] = (projection, bias, None, None, None),
        extra: tuple[torch.Tensor | None, ...] = (None, None),
        masks: tuple[torch.Tensor | None, ...] = (None, None),
        flags: tuple[bool, ...] = (False, True, True, False),
        note: str = "",
        gradient: bool = True,
    ) -> Sample:
        out = random(width, width), random(width)
        arguments = (query, key, value, *projections, *extra, *out, *masks, heads, *flags)
        return Sample(arguments, note=note, gradient=gradient)

    # PyTorch fills a mask in place, which is taken out of a traced gradient only if the mask is an input.
    extra = random(1, 1, width), random(1, 1, width)
    yield sample(context, context, masks=(padding, None), extra=extra, note="padding", gradient=False)
    yield sample(query, query, masks=(None, causal), flags=(False, False, True, False), note="no weights")
    of_keys, of_values = random(width, 4), random(width, 6)
    yield sample(
        random(5, 2, 4),
        random(5, 2, 6),
        (None, None, random(width, width), of_keys, of_values),
        flags=(True, True, False, False),
        note="own widths, a zero key, weights of each head",
    )
