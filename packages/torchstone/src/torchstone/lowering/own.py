"""The schemas of Torchstone's own operators, for what PyTorch has no operator for or unrolls when it traces.

Everything else about these operators is in their records: their lowerings (``lowering.aten``), and how
PyTorch runs, traces and differentiates them (``compiler.operators``).
"""

from __future__ import annotations

import torch

from ..torch_internals.operators import OpOverload, namespace, overload_name, schema_of
from .cells import CELLS

aten = namespace("aten")
own = torch.ops.torchstone
library = torch.library.Library("torchstone", "FRAGMENT")

_SCHEMAS = """
multi_head_attention(Tensor query, Tensor key, Tensor value, Tensor? in_proj_weight, Tensor? in_proj_bias,
    Tensor? q_proj_weight, Tensor? k_proj_weight, Tensor? v_proj_weight, Tensor? bias_k, Tensor? bias_v,
    Tensor out_proj_weight, Tensor? out_proj_bias, Tensor? key_padding_mask, Tensor? attn_mask, int num_heads,
    bool add_zero_attn, bool need_weights, bool average_attn_weights, bool is_causal) -> Tensor[]
gaussian_nll_loss(Tensor input, Tensor target, Tensor var, bool full, float eps, str reduction) -> Tensor
multilabel_soft_margin_loss(Tensor input, Tensor target, Tensor? weight, str reduction) -> Tensor
pack_padded_sequence(Tensor input, Tensor lengths, bool batch_first) -> (Tensor data, Tensor batch_sizes)
pad_packed_sequence(Tensor data, Tensor batch_sizes, SymInt batch, bool batch_first, float padding_value,
    SymInt total_length) -> (Tensor padded, Tensor lengths)
masked_select(Tensor self, Tensor mask, int size) -> Tensor
linear_recurrence(Tensor coefficient, Tensor input, int dim, bool reverse) -> Tensor

rnn_layer(Tensor gates, Tensor[] hx, Tensor weight, Tensor? bias, Tensor? projection, Tensor? batch_sizes,
    str mode, bool reverse) -> Tensor[]
rnn_layer_backward(Tensor grad_output, Tensor[] grad_last, Tensor[] saved, Tensor weight, Tensor? projection,
    Tensor? batch_sizes, str mode, bool reverse) -> Tensor[]
onednn_lstm(Tensor input, Tensor h, Tensor c, Tensor[] params, bool reverse, bool saving) -> Tensor[]
onednn_lstm_backward(Tensor[] grads, Tensor input, Tensor h, Tensor c, Tensor[] params, Tensor[] made,
    bool reverse) -> Tensor[]

to_sparse_coo(Tensor self, int sparse_dim, int bound) -> (Tensor, Tensor, Tensor)
sparse_to_dense(Tensor indices, Tensor values, int[] size) -> Tensor
sparse_take(Tensor self, Tensor indices) -> Tensor
sparse_coalesce(Tensor indices, Tensor values, int[] size) -> (Tensor, Tensor, Tensor, Tensor)
sparse_sum(Tensor indices, Tensor values, int[] size, int[] dim) -> (Tensor, Tensor, Tensor, Tensor)
sparse_mm(Tensor indices, Tensor values, int[] size, Tensor mat2) -> Tensor
sparse_sampled_mm(Tensor indices, Tensor mat1, Tensor mat2) -> Tensor
sparse_addmm(Tensor self, Tensor indices, Tensor values, int[] size, Tensor mat2, *, Scalar beta=1,
    Scalar alpha=1) -> Tensor
sparse_sampled_addmm(Tensor self, Tensor indices, Tensor mat1, Tensor mat2, *, Scalar beta=1,
    Scalar alpha=1) -> Tensor
sparse_softmax(Tensor indices, Tensor values, int[] size, int dim, bool log) -> Tensor
sparse_softmax_backward(Tensor grad, Tensor output, Tensor indices, int[] size, int dim, bool log) -> Tensor
to_sparse_semi_structured(Tensor self) -> (Tensor values, Tensor places)
semi_structured_to_dense(Tensor values, Tensor places) -> Tensor

quantize(Tensor self, float[] scale, int[] zero_point, int axis, ScalarType dtype) -> Tensor
dequantize(Tensor self, float[] scale, int[] zero_point, int axis) -> Tensor
quantized_linear(Tensor self, float scale, int zero_point, Tensor weight, float[] weight_scale,
    int[] weight_zero_point, Tensor? bias, float out_scale, int out_zero_point, bool relu) -> Tensor
quantized_linear_dynamic(Tensor self, Tensor weight, float[] weight_scale, int[] weight_zero_point,
    Tensor? bias, bool relu, bool reduce_range) -> Tensor
quantized_conv(Tensor self, float scale, int zero_point, Tensor weight, float[] weight_scale,
    int[] weight_zero_point, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups,
    float out_scale, int out_zero_point, bool relu) -> Tensor
quantized_batch_norm(Tensor self, float scale, int zero_point, Tensor weight, Tensor bias, Tensor mean,
    Tensor var, float eps, float out_scale, int out_zero_point, bool relu) -> Tensor
quantized_add(Tensor self, Tensor other, float[] scales, int[] zero_points, bool relu) -> Tensor
quantized_mul(Tensor self, Tensor other, float[] scales, int[] zero_points, bool relu) -> Tensor
quantized_relu(Tensor self, float scale, int zero_point) -> Tensor
"""
"""The schemas in four groups: functions that PyTorch would trace as the operators that they call, layers of
recurrent networks in one direction, the dense parts of sparse tensors, the integers of quantized tensors."""

for _schema in _SCHEMAS.replace("\n    ", " ").split("\n"):
    if _schema:
        library.define(_schema)


def _stand_in(original: OpOverload) -> OpOverload:
    """Define an operator with the schema of ``original``, named ``lstm``, or ``lstm_packed`` if packed."""
    name = schema_of(original).name.removeprefix("aten::")
    theirs = overload_name(original)
    mine = f"{name}_packed" if theirs == "data" else name
    library.define(str(schema_of(original)).replace(f"aten::{name}.{theirs}", mine))
    defined: OpOverload = getattr(own, mine).default
    return defined


_RECURRENT = (getattr(getattr(aten, mode), overload) for mode in CELLS for overload in ("input", "data"))
STAND_INS = {one: _stand_in(one) for one in _RECURRENT if isinstance(one, OpOverload)}
"""Maps ATen's overloads of recurrent networks to Torchstone's operators."""
