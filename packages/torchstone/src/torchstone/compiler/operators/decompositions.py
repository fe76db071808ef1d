"""Decompositions of operators for which PyTorch has none, or one that is wrong or less precise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...lowering import decomposes
from ...torch_internals import decompositions
from ...torch_internals.decompositions import decomposition_table, quantized_decomposed
from ...torch_internals.operators import namespace

quantized = quantized_decomposed.get()  # PyTorch registers the operators when it is imported
aten, decomposed = namespace("aten"), namespace("quantized_decomposed")

Tensor = torch.Tensor


@decomposes(aten._index_put_impl.default)
def index_put_impl(
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> Tensor:
    """``index_put``; ``unsafe`` leaves out checks that programs do not make."""
    put: Tensor = aten.index_put.default(self, indices, values, accumulate)
    return put


@decomposes(aten.nan_to_num.default)
def nan_to_num(
    self: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Use PyTorch's decomposition. It does not take complex tensors, so these are computed part by part."""
    if not self.is_complex():
        expanded: Tensor = decomposition_table.get()[aten.nan_to_num.default](self, nan, posinf, neginf)
        return expanded
    parts = (torch.nan_to_num(part, nan, posinf, neginf) for part in (self.real, self.imag))
    return torch.complex(*parts)


@decomposes(aten.glu_backward.default)
def glu_backward(grad_output: Tensor, self: Tensor, dim: int) -> Tensor:
    """Return the gradient of ``a * sigmoid(b)``, where ``a`` and ``b`` are the halves of ``self``.

    Eager PyTorch rounds float16 after each operation, and so does this. Then ``sigmoid(-20)`` is 0, so that
    an infinite ``a`` makes the gradient NaN.
    """
    wide = torch.float32 if self.dtype == torch.bfloat16 else self.dtype
    a, b = self.to(wide).chunk(2, dim)
    grad = grad_output.to(wide)
    gate = torch.sigmoid(b)
    slope = (1.0 - gate) * gate * a * grad
    return torch.cat([gate * grad, slope], dim).to(self.dtype)


@decomposes(aten.scaled_dot_product_attention.default)
def attention_with_dropout(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute softmax, dropout and products separately, so that ``native_dropout`` draws the mask."""
    if not dropout_p:
        return NotImplemented
    return aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )[0]


decomposes(decomposed.choose_qparams_per_token_asymmetric.default)(
    quantized.choose_qparams_per_token_asymmetric
)


@decomposes(decomposed.choose_qparams_per_token.default)
def choose_qparams_per_token(input: Tensor, dtype: torch.dtype) -> Any:
    """Use PyTorch's formula, since its kernel returns other dtypes than its shape rule promises."""
    return quantized.choose_qparams_per_token(input, dtype)


@decomposes(decomposed.convert_element_type.no_fuse)
def convert_element_type(input: Tensor, dtype: torch.dtype) -> Any:
    """Convert a tensor. PyTorch's own compiler does not fuse this operator with its neighbors."""
    return torch.ops.prims.convert_element_type.default(input, dtype)


def _in_double(reference: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return PyTorch's decomposition, computed in float64 if all operands are float32."""

    def function(*operands: Tensor) -> Tensor:
        if not all(operand.dtype == torch.float32 for operand in operands):
            return reference(*operands)
        return reference(*(operand.double() for operand in operands)).float()

    return function


# float32 is not enough: the sum of logaddexp may cancel to almost 0, and large angles need more digits of π.
decomposes(aten.logaddexp.default)(_in_double(decompositions.logaddexp))
decomposes(aten.sinc.default)(_in_double(decompositions.sinc))
