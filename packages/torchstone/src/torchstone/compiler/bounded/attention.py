"""The rule for attention."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from .calls import called, rule
from .sizes import NoForm, Trace


@rule("scaled_dot_product_attention")
def attention(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    """Mask padded keys. The results of padded queries and batches are padding themselves."""
    query, key, value, mask = (given[name] for name in ("query", "key", "value", "attn_mask"))
    if any(one.meta["val"].ndim - 1 in trace.dims(one) for one in (query, key, value)):
        raise NoForm("the width of its heads depends on values")
    along = key.meta["val"].ndim - 2
    if along not in trace.dims(key) and along not in trace.dims(value):
        return called(trace, node)
    rows, columns = query.meta["val"].shape[-2], key.meta["val"].shape[-2]
    places = torch.arange(trace.physical(columns))
    seen = (places < trace.number(columns)).expand(trace.physical(rows), -1)
    if given["is_causal"]:
        seen = seen & (places <= torch.arange(trace.physical(rows))[:, None])
    if mask is not None and mask.meta["val"].dtype == torch.bool:
        seen = seen & trace.values[mask]
    elif mask is not None:
        seen = torch.where(seen, trace.values[mask], -math.inf)
    # Padding may be NaN, and NaN times a weight of zero is still NaN.
    return called(
        trace,
        node,
        key=trace.filled(key, 0, [along]),
        value=trace.filled(value, 0, [along]),
        attn_mask=seen,
        is_causal=False,
    )
