"""Another implementation of each composite, found by the composite's name: eager PyTorch's operator.

Composites represent sparse tensors by their parts and quantized ones by integers, for which PyTorch has no
operator. There, the replacement is the CPU kernel of Torchstone's own operator, which calls PyTorch's sparse
and quantized operators.

A replacement sees only the attributes and the operands, as a vendor's compiler does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

import quantized_replacements
import recurrent_replacements
from torchstone.torch_internals.operators import namespace

aten = namespace("aten")
own = torch.ops.torchstone

Tensors = Sequence[torch.Tensor | None]
Attributes = dict[str, Any]

_FLASH = aten._scaled_dot_product_flash_attention_for_cpu_backward
OVERLOADS = {
    "cdist": aten._cdist_forward.default,
    "cdist_backward": aten._cdist_backward.default,
    "ctc_loss": aten._ctc_loss.Tensor,
    "ctc_loss_backward": aten._ctc_loss_backward.Tensor,
    "embedding_backward": aten.embedding_dense_backward.default,
    "group_norm": aten.native_group_norm.default,
    "group_norm_backward": aten.native_group_norm_backward.default,
    "layer_norm": aten.native_layer_norm.default,
    "linalg_cholesky": aten.linalg_cholesky_ex.default,
    "linalg_cholesky_inverse": aten.cholesky_inverse.default,
    "linalg_cholesky_solve": aten.cholesky_solve.default,
    "linalg_det": aten._linalg_det.default,
    "linalg_eigh": aten._linalg_eigh.default,
    "linalg_eigvals": aten._linalg_eigvals.default,
    "linalg_geqrf": aten.geqrf.default,
    "linalg_inv": aten.linalg_inv_ex.default,
    "linalg_ldl_factor": aten.linalg_ldl_factor_ex.default,
    "linalg_lstsq": aten.linalg_lstsq.default,
    "linalg_lu_factor": aten.linalg_lu_factor_ex.default,
    "linalg_lu_unpack": aten.lu_unpack.default,
    "linalg_ormqr": aten.ormqr.default,
    "linalg_pinv": aten.linalg_pinv.atol_rtol_tensor,
    "linalg_slogdet": aten._linalg_slogdet.default,
    "linalg_solve": aten._linalg_solve_ex.default,
    "linalg_svd": aten._linalg_svd.default,
    "log_softmax": aten._log_softmax.default,
    "log_softmax_backward": aten._log_softmax_backward_data.default,
    "masked_softmax": aten._masked_softmax.default,
    "masked_softmax_backward": aten._masked_softmax_backward.default,
    "multilabel_margin_loss": aten.multilabel_margin_loss_forward.default,
    "pdist": aten._pdist_forward.default,
    "pdist_backward": aten._pdist_backward.default,
    "rms_norm": aten._fused_rms_norm.default,
    "rms_norm_backward": aten._fused_rms_norm_backward.default,
    "scaled_dot_product_attention_forward": aten._scaled_dot_product_flash_attention_for_cpu.default,
    "scaled_dot_product_attention_backward": _FLASH.default,
    "softmax": aten._softmax.default,
    "softmax_backward": aten._softmax_backward_data.default,
}
"""ATen operators of the composites whose name differs from the operator's."""

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
DERIVED: dict[str, Callable[[Attributes, torch.Tensor], Any]] = {
    "reduction": lambda a, _: REDUCTIONS[a["reduction"]],
    "dim": lambda a, _: a["axis"] if "axis" in a else a["axes"][0] if a.get("axes") else None,
    "dims": lambda a, _: a["axes"],
    "keepdim": lambda a, _: a["keepdims"],
    "eps": lambda a, _: a["epsilon"],
    "half_to_float": lambda *_: False,
    "input_dtype": lambda a, _: getattr(torch, a["dtypes"][0]),
    "UPLO": lambda a, _: "L" if a["lower"] else "U",
    "compute_v": lambda a, _: a["vectors"],
    "normalized_shape": lambda a, x: [x.shape[axis] for axis in a["axes"]],
    "N": lambda _, x: x.shape[0],
    "C": lambda _, x: x.shape[1],
    "HxW": lambda _, x: math.prod(x.shape[2:]),
    "group": lambda a, _: a["groups"],
    "train": lambda a, _: a["training"],
    "scales": lambda a, _: [a["scale"], a["other_scale"], a["out_scale"]],
    "zero_points": lambda a, _: [a["zero_point"], a["other_zero_point"], a["out_zero_point"]],
    "output_mask": lambda a, _: [dtype != "none" for dtype in a["dtypes"]],
    "compute_mode": lambda *_: None,
    "dropout_p": lambda *_: 0.0,
    "dtype": lambda a, _: getattr(torch, a["dtype"] if "dtype" in a else a["dtypes"][0]),
}
"""How to get the schema's parameters from the attributes; the second argument is the first operand."""


def _batch_norm_inference(operands: Tensors, attributes: Attributes) -> Any:
    return aten.native_batch_norm.default(*operands, False, 0.0, attributes["epsilon"])[0]


def _batch_norm_training(operands: Tensors, attributes: Attributes) -> Any:
    x, weight, bias, mean, var = operands
    momentum, epsilon = attributes["momentum"], attributes["epsilon"]
    if mean is None:
        return aten._native_batch_norm_legit.no_stats(x, weight, bias, True, momentum, epsilon)
    return aten._native_batch_norm_legit_functional.default(
        x, weight, bias, mean, var, True, momentum, epsilon
    )


def _batch_norm_backward(operands: Tensors, attributes: Attributes) -> Any:
    grad, x, weight, mean, invstd = operands
    assert mean is not None
    assert invstd is not None
    variance = invstd.double() ** -2  # the square root of this is exact, whatever epsilon was
    running = (None, None) if attributes["training"] else (mean.double(), variance)
    wide = [one if one is None else one.double() for one in (grad, x, weight)]
    statistics = (*running, mean.double(), invstd.double())
    return aten.native_batch_norm_backward.default(
        *wide, *statistics, attributes["training"], 0.0, [True, True, True]
    )


BAG_MODES = {"sum": 0, "mean": 1, "max": 2}


def _embedding_bag(operands: Tensors, attributes: Attributes) -> Any:
    weight, indices, offsets, scale = operands
    options = (attributes["include_last_offset"], attributes["padding_idx"])
    forward = aten._embedding_bag if attributes["with_bags"] else aten._embedding_bag_forward_only
    mode = BAG_MODES[attributes["mode"]]
    return forward.default(weight, indices, offsets, False, mode, False, scale, *options)


def _embedding_bag_backward(operands: Tensors, attributes: Attributes) -> Any:
    grad, indices, bag, sizes, maximum, scale = operands
    return aten._embedding_bag_dense_backward.default(
        grad,
        indices,
        bag,
        sizes,
        maximum,
        attributes["num_weights"],
        attributes["scale_grad_by_freq"],
        BAG_MODES[attributes["mode"]],
        scale,
        attributes["padding_idx"],
    )


def _nll_loss(operands: Tensors, attributes: Attributes) -> Any:
    scores, target, weight = operands
    assert scores is not None
    forward = aten.nll_loss2d_forward if scores.dim() == 4 else aten.nll_loss_forward
    options = (REDUCTIONS[attributes["reduction"]], attributes["ignore_index"])
    return forward.default(scores, target, weight, *options)


def _nll_loss_backward(operands: Tensors, attributes: Attributes) -> Any:
    grad, scores, target, weight, total = operands
    assert scores is not None
    backward = aten.nll_loss2d_backward if scores.dim() == 4 else aten.nll_loss_backward
    options = (REDUCTIONS[attributes["reduction"]], attributes["ignore_index"])
    return backward.default(grad, scores, target, weight, *options, total)


def _layer_norm_backward(operands: Tensors, attributes: Attributes) -> Any:
    grad, x, mean, rstd, weight = operands
    assert x is not None
    shape = [x.shape[axis] for axis in attributes["axes"]]
    mask = [dtype != "none" for dtype in attributes["dtypes"]]
    # The bias has to be there only so that its gradient is computed.
    bias = torch.zeros(shape, dtype=x.dtype)
    return aten.native_layer_norm_backward.default(grad, x, shape, mean, rstd, weight, bias, mask)


def _gaussian_nll_loss(operands: Tensors, attributes: Attributes) -> Any:
    x, target, variance = operands
    assert variance is not None
    options = {name: attributes[key] for name, key in (("full", "full"), ("eps", "epsilon"))}
    allowed = variance.clamp(min=0)  # PyTorch refuses negative ones; the composite clamps them
    return F.gaussian_nll_loss(x, target, allowed, reduction=attributes["reduction"], **options)


def _masked_select(operands: Tensors, attributes: Attributes) -> Any:
    x, mask = operands
    assert x is not None
    assert mask is not None
    found = torch.masked_select(x, mask)[: attributes["size"]]
    return torch.cat([found, found.new_zeros(attributes["size"] - len(found))])


def _multi_head_attention(operands: Tensors, attributes: Attributes) -> Any:
    """Multi-head attention, computed one head at a time."""
    query, key, value, packed, bias, *rest = operands
    separate, (bias_k, bias_v, out_weight, out_bias, padding, mask) = rest[:3], rest[3:]
    weights = packed.chunk(3) if packed is not None else separate
    biases = bias.chunk(3) if bias is not None else [None] * 3
    q, k, v = map(F.linear, (query, key, value), weights, biases)
    for extra_k, extra_v in [(bias_k, bias_v)] + [(0 * k[:1], 0 * v[:1])] * attributes["add_zero_attn"]:
        if extra_k is not None:
            k = torch.cat([k, extra_k.expand(1, *k.shape[1:])])
            v = torch.cat([v, extra_v.expand(1, *v.shape[1:])])
    added = k.shape[0] - key.shape[0]
    heads, outputs = attributes["num_heads"], []
    attention = []
    for q_head, k_head, v_head in zip(*(x.chunk(heads, -1) for x in (q, k, v)), strict=True):
        scores = torch.einsum("lne,sne->nls", q_head, k_head) / math.sqrt(q_head.shape[-1])
        if mask is not None:
            scores = scores + F.pad(mask, (0, added))
        if padding is not None:
            scores = scores.masked_fill(F.pad(padding, (0, added))[:, None], float("-inf"))
        attention.append(torch.softmax(scores, -1))
        outputs.append(torch.einsum("nls,sne->lne", attention[-1], v_head))
    result = F.linear(torch.cat(outputs, -1), out_weight, out_bias)
    if not attributes["need_weights"]:
        return result
    weights = torch.stack(attention, 1)
    return result, weights.mean(1) if attributes["average_attn_weights"] else weights


SPECIAL: dict[str, Callable[[Tensors, Attributes], Any]] = {
    "batch_norm_backward": _batch_norm_backward,
    "batch_norm_inference": _batch_norm_inference,
    "batch_norm_training": _batch_norm_training,
    "embedding_bag": _embedding_bag,
    "embedding_bag_backward": _embedding_bag_backward,
    "layer_norm_backward": _layer_norm_backward,
    "nll_loss": _nll_loss,
    "nll_loss_backward": _nll_loss_backward,
    "circular_pad": lambda given, a: F.pad(given[0], a["padding"], mode="circular"),
    "einsum": lambda given, a: torch.einsum(a["equation"], *given),
    "fftfreq": lambda _, a: torch.fft.fftfreq(a["n"], a["d"], dtype=torch.float64),
    "fftshift": lambda given, a: torch.fft.fftshift(given[0], a["axes"]),
    "gaussian_nll_loss": _gaussian_nll_loss,
    "ifftshift": lambda given, a: torch.fft.ifftshift(given[0], a["axes"]),
    "masked_select": _masked_select,
    "multi_head_attention": _multi_head_attention,
    "multilabel_soft_margin_loss": lambda given, a: F.multilabel_soft_margin_loss(
        *given, reduction=a["reduction"]
    ),
    "reflect_pad": lambda given, a: F.pad(given[0], a["padding"], mode="reflect"),
    "rfftfreq": lambda _, a: torch.fft.rfftfreq(a["n"], a["d"], dtype=torch.float64),
    "tensordot": lambda given, a: torch.tensordot(*given, dims=(a["axes"], a["other_axes"])),
    "unbind": lambda given, a: torch.unbind(given[0], a["axis"]),
    **quantized_replacements.REPLACEMENTS,
    **recurrent_replacements.REPLACEMENTS,
}
"""Composites that stand for several overloads, or whose call doesn't follow from their attributes' names."""


def _default(namespace: Any, name: str) -> Any:
    return getattr(getattr(namespace, name, None), "default", None)


def replacement(name: str) -> Callable[[Tensors, Attributes], Any]:
    """Return the operator that a composite stands for, as a function of operands and attributes only."""
    if name in SPECIAL:
        return SPECIAL[name]
    overload = OVERLOADS.get(name) or _default(own, name) or _default(aten, name)
    assert overload is not None, f"nothing replaces {name}"

    def argument(parameter: Any, attributes: Attributes, first: torch.Tensor) -> Any:
        derive = DERIVED.get(parameter.name)
        if parameter.name in attributes and parameter.name not in ("reduction", "dtype"):
            return attributes[parameter.name]
        try:
            if derive is not None:
                return derive(attributes, first)
        except KeyError:
            pass
        assert parameter.has_default_value(), f"{name} does not say {parameter.name}"
        return parameter.default_value

    def function(operands: Tensors, attributes: Attributes) -> Any:
        feed = iter(operands)
        first = next(operand for operand in operands if operand is not None)
        return overload(
            **{
                parameter.name: next(feed, None)
                if "Tensor" in str(parameter.type)
                else argument(parameter, attributes, first)
                for parameter in overload._schema.arguments
            }
        )

    return function
