"""Scaled dot-product attention as one operator, and the forms that autograd produces.

Also multi-head attention with its projections, as it appears in exported graphs.

Masks are additive or boolean, where True means that the key takes part. With
``is_causal``, query ``i`` sees keys ``0 … i``, even if there are more or fewer keys
than queries. The result of a query that sees no keys is zero. Several query heads may
share one key head (grouped queries).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ... import hlo
from ...dtypes import FLOATING
from ...errors import LoweringBug
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..attention import Sight, attend, attend_gradient
from ..checks import Arguments
from ..composites import Expand, Specs, composed, expanded
from ..misfits import broadcasts
from ..own import own
from ..registry import Spec, lowers

aten = namespace("aten")


def _default_scale(query: Value, scale: float | None) -> float:
    """Return the factor of the scores; by default 1/√width, where the width may be symbolic."""
    if scale is not None:
        return scale
    width = query.shape[-1]
    return 1.0 if hlo.same_dim(width, 0) else width**-0.5


def _aligned(query: Value, key: Value, value: Value, grouped: bool) -> tuple[Value, Value, Value]:
    """Broadcast the leading axes of query, key and value.

    If ``grouped``, keys and values keep their smaller number of heads, unless these numbers differ.
    """
    if grouped and not hlo.same_dim(key.shape[-3], value.shape[-3]):
        key, value = (_repeat_heads(x, query.shape[-3]) for x in (key, value))
        grouped = False
    trailing = 3 if grouped else 2
    lead = hlo.broadcast_shapes(*(x.shape[:-trailing] for x in (query, key, value)))

    def widen(x: Value) -> Value:
        return hlo.broadcast_to(x, (*lead, *x.shape[-trailing:]))

    return widen(query), widen(key), widen(value)


def _repeat_heads(x: Value, heads: hlo.Dim) -> Value:
    """Repeat each head of ``x``, ``(…, key heads, S, n)``, for the query heads of its group."""
    *lead, own, rows, width = x.shape
    group = heads // own
    repeated = hlo.broadcast_to(
        hlo.reshape(x, (*lead, own, 1, rows, width)), (*lead, own, group, rows, width)
    )
    return hlo.reshape(repeated, (*lead, heads, rows, width))


def _refuses_misfits(arguments: Arguments) -> str | None:
    """Refuse shapes that do not fit. Eager PyTorch ignores some, above all if it computes no scores."""
    query, key, value = (arguments[name].shape for name in ("query", "key", "value"))
    if query[-1] != key[-1]:
        return f"query {list(query)} and key {list(key)} are not of the same width"
    if key[-2] != value[-2]:
        return f"key {list(key)} and value {list(value)} are not of the same number of keys"
    last = -3 if arguments["enable_gqa"] else -2  # with groups, each query head has scores
    try:
        lead = torch.broadcast_shapes(query[:last], key[:last])
        torch.broadcast_shapes(lead, value[:last])
    except RuntimeError:
        return f"query {list(query)}, key {list(key)} and value {list(value)} are not of the same batch"
    return _mask_misfit(arguments["attn_mask"], (*lead, *query[last:-1], key[-2]))


def _mask_misfit(mask: torch.Tensor | None, scores: Sequence[int | torch.SymInt]) -> str | None:
    if mask is None or broadcasts(mask.shape, scores):
        return None
    return f"attn_mask {list(mask.shape)} does not broadcast to the scores' shape {list(scores)}"


@lowers(aten.scaled_dot_product_attention.default, dtypes=FLOATING, refuses=_refuses_misfits)
def scaled_dot_product_attention(
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    out: Spec,
) -> list[Value | None]:
    """``softmax(query · keyᵀ · scale + mask) · value``."""
    if dropout_p:
        raise LoweringBug("attention with dropout should have been decomposed before lowering")
    factor = _default_scale(query, scale)

    def kernel(query: Value, key: Value, value: Value, mask: Value | None) -> Value:
        return attend(*_aligned(query, key, value, enable_gqa), Sight(mask, is_causal, factor))[0]

    attributes = {"is_causal": is_causal, "scale": factor, "enable_gqa": enable_gqa}
    inputs = [query, key, value, attn_mask]
    return composed("scaled_dot_product_attention", inputs, kernel, out, attributes)


def _refuses_unread(arguments: Arguments) -> str | None:
    """Refuse tensors that flash attention's kernels would misread.

    These kernels check at most ranks and widths. They read beyond the end of a tensor that is too small, and
    assume that the elements of a row are adjacent.
    """
    tensors = {name: arguments[name] for name in _READ if name in arguments}
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    query, key = shapes["query"], shapes["key"]
    if not (
        len(query) == len(key) == 4
        and shapes["value"] == key
        and (query[0], query[3]) == (key[0], key[3])
        and (query[1] == key[1] or (key[1] > 0 and query[1] % key[1] == 0))
        and all(shapes.get(name, query) == query for name in ("grad_out", "out"))
        and shapes.get("logsumexp", query[:3]) == query[:3]
    ):
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        return f"its tensors do not fit together: {told}"
    for name, tensor in tensors.items():
        if name in _BY_ROWS and tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            return (
                f"the rows of {name} are not contiguous (stride {list(tensor.stride())}): make it contiguous"
            )
    return _mask_misfit(arguments["attn_mask"], (*query[:3], key[2]))


_READ = ("grad_out", "query", "key", "value", "out", "logsumexp")
_BY_ROWS = ("query", "key", "value", "out")


# The CPU's flash attention accepts only a dropout of 0.


@lowers(
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    dtypes=FLOATING,
    ignores=("dropout_p",),
    refuses=_refuses_unread,
)
def flash_attention(
    query: Value,
    key: Value,
    value: Value,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
    out: Specs,
) -> list[Value | None]:
    """Attention and the logarithm of its softmax denominators, which the gradient needs."""
    factor = _default_scale(query, scale)

    def kernel(query: Value, key: Value, value: Value, mask: Value | None) -> Sequence[Value]:
        return attend(query, key, value, Sight(mask, is_causal, factor))

    attributes = {"is_causal": is_causal, "scale": factor}
    inputs = [query, key, value, attn_mask]
    return composed("scaled_dot_product_attention_forward", inputs, kernel, out, attributes)


@lowers(
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default,
    dtypes=FLOATING,
    refuses=_refuses_unread,
    ignores=("dropout_p",),
)
def flash_attention_backward(
    grad_out: Value,
    query: Value,
    key: Value,
    value: Value,
    out: Value,
    logsumexp: Value,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value | None]:
    """Gradients of attention with respect to query, key and value."""
    factor = _default_scale(query, scale)

    def kernel(
        grad: Value, query: Value, key: Value, value: Value, out: Value, logsumexp: Value, mask: Value | None
    ) -> Sequence[Value]:
        return attend_gradient(grad, query, key, value, out, logsumexp, Sight(mask, is_causal, factor))

    inputs = [grad_out, query, key, value, out, logsumexp, attn_mask]
    results = [Spec(x.shape, x.dtype) for x in (query, key, value)]
    attributes = {"is_causal": is_causal, "scale": factor}
    return composed("scaled_dot_product_attention_backward", inputs, kernel, results, attributes)


@lowers(own.multi_head_attention.default, dtypes=FLOATING)
def multi_head_attention(
    query: Value,
    key: Value,
    value: Value,
    in_proj_weight: Value | None,
    in_proj_bias: Value | None,
    q_proj_weight: Value | None,
    k_proj_weight: Value | None,
    v_proj_weight: Value | None,
    bias_k: Value | None,
    bias_v: Value | None,
    out_proj_weight: Value,
    out_proj_bias: Value | None,
    key_padding_mask: Value | None,
    attn_mask: Value | None,
    num_heads: int,
    add_zero_attn: bool,
    need_weights: bool,
    average_attn_weights: bool,
    is_causal: bool,
    expand: Expand,
    out: Sequence[Spec],
) -> list[Value]:
    """Attention over several heads, with projections of the queries, keys, values and result."""
    projections = [in_proj_weight, in_proj_bias, q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v]
    inputs = [query, key, value, *projections, out_proj_weight, out_proj_bias, key_padding_mask, attn_mask]
    attributes = {
        "num_heads": num_heads,
        "add_zero_attn": add_zero_attn,
        "need_weights": need_weights,
        "average_attn_weights": average_attn_weights,
        "is_causal": is_causal,
    }
    return expanded("multi_head_attention", inputs, expand, out, attributes)
