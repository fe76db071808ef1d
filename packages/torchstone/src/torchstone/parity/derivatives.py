"""PyTorch calls, and the overloads of their derivatives in the graphs that AOTAutograd makes.

``DERIVATIVES`` is a table by family. Its keys are texts that are evaluated on the example
inputs of the inventory (:mod:`.inventory.calls`). Its values are the overloads that PyTorch's
derivative formulas leave in the backward graph and that are typical of the call
(elementwise arithmetic is left out). :func:`check` runs a family, and reports which
overloads were called and which gradients are wrong.

Not here: derivatives of single overloads, which operator samples check.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..backend.records import recorded
from .inventory.calls import Call
from .inventory.operator_runs import Item, judged_gradients, quiet

Overloads = tuple[str, ...]

_CONVOLUTION = ("convolution_backward.default",)
_BATCH_NORM = ("native_batch_norm_backward.default",)
_ATTENTION = ("_scaled_dot_product_flash_attention_for_cpu_backward.default",)
_BAG = ("_embedding_bag_backward.default",)
_RNN = ("torchstone.rnn_layer_backward.default",)
_CELL = ("sigmoid_backward.default", "tanh_backward.default")
_PLACED = ("scatter.src",)
_ADDED = ("scatter_add.default",)

DERIVATIVES: Mapping[str, Mapping[str, Overloads]] = {
    "convolution": {
        "F.conv1d(signal, kernel, filters)": _CONVOLUTION,
        "F.conv2d(image, kernel2d, filters)": _CONVOLUTION,
        "F.conv3d(volume, kernel3d, triple)": _CONVOLUTION,
        "F.conv_transpose2d(image, transposed2d, filters, stride=2)": _CONVOLUTION,
    },
    "pooling": {
        "F.max_pool1d(signal, 2)": ("max_pool2d_with_indices_backward.default",),
        "F.max_pool2d(image, 2)": ("max_pool2d_with_indices_backward.default",),
        "F.max_pool3d(volume, 2)": ("max_pool3d_with_indices_backward.default",),
        "F.avg_pool1d(signal, 2)": ("avg_pool2d_backward.default",),
        "F.avg_pool2d(image, 2)": ("avg_pool2d_backward.default",),
        "F.avg_pool3d(volume, 2)": ("avg_pool3d_backward.default",),
        "F.adaptive_avg_pool2d(image, (2, 3))": ("_adaptive_avg_pool2d_backward.default",),
        "F.adaptive_avg_pool3d(volume, (2, 2, 3))": ("_adaptive_avg_pool3d_backward.default",),
        "F.adaptive_max_pool2d(image, (2, 3))": ("adaptive_max_pool2d_backward.default",),
        "F.adaptive_max_pool3d(volume, (2, 2, 3))": ("adaptive_max_pool3d_backward.default",),
        "F.fractional_max_pool2d(image, 2, output_size=(3, 2), _random_samples=torch.full((2, 4, 2), 0.3))": (
            "fractional_max_pool2d_backward.default",
        ),
    },
    "normalization": {
        "F.batch_norm(image, None, None, channels, channels, training=True)": _BATCH_NORM,
        "F.instance_norm(image)": _BATCH_NORM,
        "F.layer_norm(x, (4,), row, row)": ("native_layer_norm_backward.default",),
        "F.group_norm(image, 2, channels, channels)": ("native_group_norm_backward.default",),
        "F.local_response_norm(image, 3)": ("avg_pool3d_backward.default",),
    },
    "attention": {
        "F.scaled_dot_product_attention(queries, keys, values)": _ATTENTION,
        "F.scaled_dot_product_attention(queries, keys, values, attn_mask=allowed)": _ATTENTION,
        "nn.MultiheadAttention(4, 2)(sequence, memory, memory)": ("_softmax_backward_data.default",),
        "F.softmax(x, -1)": ("_softmax_backward_data.default",),
        "F.log_softmax(x, -1)": ("_log_softmax_backward_data.default",),
        "torch._masked_softmax(x, mask, 1)": ("_masked_softmax_backward.default",),
    },
    "embedding": {
        "F.embedding(tokens, table)": ("embedding_dense_backward.default",),
        "F.embedding_bag(bags, table, offsets, mode='sum')": _BAG,
        "F.embedding_bag(bags, table, offsets, mode='max')": _BAG,
        "F.embedding_bag(bags, table, offsets, mode='sum', per_sample_weights=tokens_weights.flatten())": (
            *_BAG,
            "_embedding_bag_per_sample_weights_backward.default",
        ),
    },
    "loss": {
        "F.cross_entropy(x, labels)": ("_log_softmax_backward_data.default", "nll_loss_backward.default"),
        "F.nll_loss(image, tokens.clamp(max=3)[:, :2, None].expand(2, 2, 5).repeat(1, 3, 1))": (
            "nll_loss2d_backward.default",
        ),
        "F.mse_loss(x, y)": ("mse_loss_backward.default",),
        "F.smooth_l1_loss(x, y)": ("smooth_l1_loss_backward.default",),
        "F.huber_loss(x, y)": ("huber_loss_backward.default",),
        "F.soft_margin_loss(x, mask.to(dtype))": ("soft_margin_loss_backward.default",),
        "F.binary_cross_entropy(probabilities, mask.to(dtype))": ("binary_cross_entropy_backward.default",),
        "F.multilabel_margin_loss(x, places[:1].expand(3, 4))": ("multilabel_margin_loss_backward.default",),
        "F.multi_margin_loss(x, labels)": ("multi_margin_loss_backward.default",),
        "F.ctc_loss(frames, targets, input_lengths, target_lengths)": ("_ctc_loss_backward.Tensor",),
        "torch.cdist(x, y)": ("_cdist_backward.default",),
        "F.pdist(x)": ("_pdist_backward.default",),
    },
    "rnn": {
        "nn.LSTM(4, 3)(sequence)": _RNN,
        "nn.GRU(4, 3)(sequence)": _RNN,
        "nn.RNN(4, 3)(sequence)": _RNN,
        "nn.LSTMCell(4, 3)(step)": _CELL,
        "nn.GRUCell(4, 3)(step)": _CELL,
        "nn.RNNCell(4, 3)(step)": ("tanh_backward.default",),
    },
    "scan": {
        "torch.cumsum(x, 1)": ("flip.default", "cumsum.default"),
        "torch.cumprod(x, 1)": ("cumprod.default", "flip.default", "scatter.value"),
        "torch.cummax(x, 1)": _ADDED,
        "torch.cummin(x, 1)": _ADDED,
        "torch.logcumsumexp(x, 1)": ("flip.default", "logcumsumexp.default"),
        "torch.diff(x)": ("slice_backward.default",),
    },
    "indexing": {
        "torch.gather(x, 1, places[:, :3])": _ADDED,
        "torch.index_select(x, 0, index)": ("index_add.default",),
        "x[index]": ("index_put.default",),
        "x[:, 1] * 2": ("select_backward.default",),
        "x[:, 1:3] * 2": ("slice_backward.default",),
        "x.diagonal() * 2": ("diagonal_backward.default",),
        "x.unfold(1, 2, 1) * 2": ("unfold_backward.default",),
        "torch.as_strided(x, (2, 2), (1, 2)) * 2": ("as_strided_scatter.default",),
        "torch.take(x, positions)": ("put.default",),
        "torch.scatter(x, 1, places, y[:2])": ("gather.default", "scatter.value"),
        "torch.scatter_reduce(x, 1, places, y[:2], 'amax')": ("gather.default", "scatter_add.default"),
        "torch.index_add(x, 0, index, narrow)": ("index_select.default",),
        "torch.index_copy(x, 0, index, narrow)": ("index_fill.int_Scalar", "index_select.default"),
        "torch.index_put(x, (index,), row)": ("index.Tensor", "index_put.default"),
        "torch.masked_fill(x, mask, 1.0)": ("masked_fill.Scalar",),
        "torch.masked_scatter(x, mask, y)": ("masked_scatter_backward.default",),
        "torch.select_scatter(x, row, 0, 1)": ("select_scatter.default",),
        "torch.slice_scatter(x, narrow, 0, 1)": ("slice_scatter.default",),
        "torch.diagonal_scatter(x, column)": ("diagonal_scatter.default",),
        "torch.sort(x)": _PLACED,
        "torch.topk(x, 2)": _PLACED,
        "torch.max(x, 1)": _PLACED,
        "F.unfold(image, 2)": ("col2im.default",),
        "torch.roll(x, 1)": ("roll.default",),
    },
    "activation": {
        "F.relu(x)": ("threshold_backward.default",),
        "F.gelu(x)": ("gelu_backward.default",),
        "F.elu(x)": ("elu_backward.default",),
        "F.leaky_relu(x)": ("leaky_relu_backward.default",),
        "F.hardtanh(x)": ("hardtanh_backward.default",),
        "F.softplus(x)": ("softplus_backward.default",),
        "F.silu(x)": ("silu_backward.default",),
        "F.mish(x)": ("mish_backward.default",),
        "torch.sigmoid(x)": ("sigmoid_backward.default",),
        "torch.tanh(x)": ("tanh_backward.default",),
    },
    "resizing": {
        "F.interpolate(image, (7, 9), mode='nearest')": ("upsample_nearest2d_backward.default",),
        "F.interpolate(image, (7, 9), mode='bilinear')": ("upsample_bilinear2d_backward.default",),
        "F.interpolate(image, (3, 4), mode='bilinear', antialias=True)": (
            "_upsample_bilinear2d_aa_backward.default",
        ),
        "F.interpolate(image, (3, 4), mode='bicubic', antialias=True)": (
            "_upsample_bicubic2d_aa_backward.default",
        ),
        "F.grid_sample(image, unit.reshape(2, 3, 1, 2), align_corners=False)": (
            "grid_sampler_2d_backward.default",
        ),
        "F.grid_sample(volume, torch.tanh(blocks).reshape(1, 2, 2, 1, 3), align_corners=False)": (
            "grid_sampler_3d_backward.default",
        ),
    },
    "padding": {
        "F.pad(cube, (1, 2), mode='reflect')": ("reflection_pad1d_backward.default",),
        "F.pad(image, (1, 2, 1, 1), mode='reflect')": ("reflection_pad2d_backward.default",),
        "F.pad(volume, (1, 1, 1, 1, 1, 1), mode='reflect')": ("reflection_pad3d_backward.default",),
        "F.pad(cube, (1, 2), mode='replicate')": ("replication_pad1d_backward.default",),
        "F.pad(image, (1, 2, 1, 1), mode='replicate')": ("replication_pad2d_backward.default",),
        "F.pad(volume, (1, 1, 1, 1, 1, 1), mode='replicate')": ("replication_pad3d_backward.default",),
    },
}


@dataclass(frozen=True)
class Checked:
    """The overloads in one family's backward graph, and a complaint for each text whose gradients differ."""

    called: frozenset[str]
    complaints: Mapping[str, str]


def check(family: str) -> Checked:
    """Run all calls of a family in one program by ``torch.compile``, and compare gradients with eager's.

    Raises :class:`AssertionError` if an operator is left to eager PyTorch.
    """
    items = []
    for text in DERIVATIVES[family]:
        call = Call(text)
        items.append(Item(("derivatives", family), call, torch.float32, call.bind(torch.float32)))
    with quiet(), recorded() as records:
        judged = judged_gradients(items)
    called = {name for record in records if record.kind == "backward" for name in record.native}
    return Checked(
        frozenset(name.removeprefix("aten.") for name in called),
        {item.call.text: complaint for item, complaint in judged.items() if complaint},
    )
