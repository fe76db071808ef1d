"""Operators that a model of the zoo shows, and those of its families that none shows alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from ..zoo import quantization, sparse
from .operation import EVERY, FLOATS, Make, modelled, operation

F32 = (torch.float32,)

# By the model's name: operator names that say the same in other words.
_MODELS: dict[str, dict[str, str]] = {
    "loss": {
        "nn.CrossEntropyLoss": "cross_entropy_loss",
        "nn.NLLLoss": "nll_loss",
        "nn.BCELoss": "bce_loss",
        "nn.BCEWithLogitsLoss": "bce_with_logits_loss",
        "nn.MSELoss": "mse_loss",
        "nn.L1Loss": "l1_loss",
        "nn.SmoothL1Loss": "smooth_l1_loss",
        "nn.HuberLoss": "huber_loss",
        "nn.KLDivLoss": "kl_div_loss",
        "nn.TripletMarginLoss": "triplet_margin_loss",
        "nn.CosineEmbeddingLoss": "cosine_embedding_loss",
        "nn.CTCLoss": "ctc_loss",
        "nn.PoissonNLLLoss": "poisson_nll_loss",
        "nn.GaussianNLLLoss": "gaussian_nll_loss",
    },
    "embedding": {
        "nn.Embedding": "embedding",
        "nn.Embedding(padding_idx=...)": "embedding_with_padding",
        "nn.Embedding(max_norm=...)": "embedding_with_max_norm",
        "nn.Embedding(sparse=True)": "embedding_sparse",
        "F.embedding": "embedding_functional",
        "nn.EmbeddingBag(mode='sum')": "embedding_bag_sum",
        "nn.EmbeddingBag(mode='mean')": "embedding_bag_mean",
        "nn.EmbeddingBag(mode='max')": "embedding_bag_max",
        "F.one_hot": "one_hot",
    },
    "attention": {
        "F.scaled_dot_product_attention": "scaled_dot_product_attention",
        "F.scaled_dot_product_attention(..., is_causal=True)": "sdpa_causal",
        "F.scaled_dot_product_attention(..., attn_mask=...)": "sdpa_mask",
        "nn.MultiheadAttention": "multihead_attention",
        "nn.TransformerEncoderLayer": "transformer_encoder_layer",
        "nn.TransformerDecoderLayer": "transformer_decoder_layer",
        "nn.TransformerEncoder": "transformer_encoder",
        "nn.TransformerDecoder": "transformer_decoder",
        "nn.Transformer": "transformer",
    },
    "quantization": {
        "fake_quantize_per_tensor_affine": "fake_quantize_per_tensor",
        "quantized_linear": "quantized_linear",
        "quantized_conv2d": "quantized_conv2d",
        "quantized_add": "quantized_add",
        "quantized_mul": "quantized_mul",
        "quantized_relu": "quantized_relu",
    },
    "sparse": {
        "sparse_coo_tensor": "sparse_coo_tensor",
        "sparse_csr_tensor": "sparse_csr_tensor",
        "to_sparse": "sparse_indices",
        "to_sparse_coo": "to_sparse_coo",
        "to_sparse_csr": "to_sparse_csr",
        "to_sparse_bsr": "to_sparse_bsr",
        "to_dense": "sparse_coo_tensor",
        "coalesce": "sparse_values",
        "indices": "sparse_indices",
        "values": "sparse_values",
        "crow_indices": "to_sparse_csr",
        "col_indices": "to_sparse_csr",
        "nnz": "to_sparse_coo",
        "sparse.mm": "sparse_mm",
        "sparse.addmm": "sparse_addmm",
        "sparse.sum": "sparse_sum",
        "sparse.softmax": "sparse_softmax",
        "to_sparse_semi_structured": "semi_structured_sparse",
    },
    "complex": {
        "torch.complex(real, imag)": "complex",
        "torch.real(x)": "real",
        "torch.imag(x)": "imag",
        "torch.conj(x)": "conj",
        "torch.angle(x)": "angle",
        "torch.polar(abs, angle)": "polar",
    },
    "fft": {
        f"torch.fft.{name}": name
        for name in (
            *("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2"),
            *("fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift"),
        )
    },
    "rnn": {
        "nn.LSTM": "lstm",
        "nn.GRU": "gru",
        "nn.RNN": "rnn_tanh",
        "nn.LSTMCell": "lstm_cell",
        "nn.GRUCell": "gru_cell",
        "nn.RNNCell": "rnn_cell",
    },
}
_CALLS = {
    "nnz": "torch.Tensor._nnz",
    "quantized_linear": "torch.ops.quantized.linear",
    "quantized_conv2d": "torch.ops.quantized.conv2d",
    "quantized_add": "torch.ops.quantized.add",
    "quantized_mul": "torch.ops.quantized.mul",
    "quantized_relu": "torch.relu of a quantized tensor",
    "to_sparse_semi_structured": "torch.sparse.to_sparse_semi_structured",
}
for _family, _names in _MODELS.items():
    for _name, _model in _names.items():
        modelled(_family, _name, _model, calls=_CALLS.get(_name, ""))


# Scans and Fourier transforms ---------------------------------------------------------

for _name in ("cumsum", "cumprod", "logcumsumexp", "diff"):
    _function = getattr(torch, _name)

    def _along(x: Tensor, _function: Any = _function) -> Tensor:
        return _function(x, dim=1)

    _dtypes = FLOATS if _name == "logcumsumexp" else EVERY
    operation("scan", f"torch.{_name}", _along, lambda make: (make(3, 6),), dtypes=_dtypes)
for _name in ("cummax", "cummin"):
    _function = getattr(torch, _name)

    def _pair(x: Tensor, _function: Any = _function) -> Any:
        return tuple(_function(x, 1))

    operation("scan", f"torch.{_name}", _pair, lambda make: (make(3, 6),))

for _name in ("fftfreq", "rfftfreq"):
    _function = getattr(torch.fft, _name)

    def _scaled(x: Tensor, _function: Any = _function) -> Tensor:
        return _function(8, d=0.5) * x

    operation("fft", f"torch.fft.{_name}", _scaled, lambda make: (make(1),), dtypes=F32)

operation(
    "complex",
    "torch.view_as_real(x)",
    lambda x: torch.view_as_real(x * 1),
    lambda make: (make(3, 4),),
    dtypes=(torch.complex64, torch.complex128),
)
operation(
    "complex",
    "torch.view_as_complex(x)",
    lambda x: torch.view_as_complex(x * 1),
    lambda make: (make(3, 4, 2),),
    dtypes=(torch.float32, torch.float64),
)


# Quantization -------------------------------------------------------------------------


def _quantized(name: str, function: Any, *, calls: str) -> None:
    def args(make: Make) -> tuple[Any, ...]:
        return (make(2, 3, 4, 4),)

    operation("quantization", name, function, args, dtypes=F32, calls=calls, trains=False, ruled=True)


def _codes(x: Tensor) -> Any:
    return torch.quantize_per_tensor(x, quantization.SCALE, quantization.ZERO, torch.quint8)


def _normalized(x: Tensor) -> Tensor:
    ones = torch.ones(3)
    return torch.ops.quantized.batch_norm2d(_codes(x), ones, ones, ones * 0.5, ones, 1e-5, 0.1, 3).int_repr()


_quantized("quantize_per_tensor", lambda x: _codes(x).int_repr(), calls="torch.quantize_per_tensor")
_quantized("dequantize", lambda x: _codes(x).dequantize(), calls="torch.dequantize")
_quantized("quantized_batch_norm", _normalized, calls="torch.ops.quantized.batch_norm2d")
_quantized("int_repr", lambda x: torch.int_repr(_codes(x)), calls="torch.int_repr")
_quantized("q_scale", lambda x: x * torch.q_scale(_codes(x)), calls="torch.q_scale")
_quantized("q_zero_point", lambda x: x + torch.q_zero_point(_codes(x)), calls="torch.q_zero_point")


def _by_channel(x: Tensor) -> Tensor:
    scales, zeros = torch.tensor([0.05, 0.1, 0.2]), torch.zeros(3, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -8, 7)


operation(
    "quantization",
    "fake_quantize_per_channel_affine",
    _by_channel,
    lambda make: (make(2, 3, 4),),
    dtypes=F32,
    calls="torch.fake_quantize_per_channel_affine",
)


# Sparse tensors -----------------------------------------------------------------------


def _columns(columns: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_csc_tensor(columns, rows, values, (sparse.COLUMNS, sparse.ROWS)).to_dense()


def _blocks(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_bsr_tensor(rows, columns, values, (4, 6)).to_dense()


def _to_columns(x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
    made = x.to_sparse_csc()
    return made.ccol_indices(), made.row_indices(), made.values(), made._nnz()


def _sampled(rows: Tensor, columns: Tensor, values: Tensor, a: Tensor, b: Tensor) -> Tensor:
    at = torch.sparse_csr_tensor(rows, columns, values, (sparse.ROWS, sparse.COLUMNS))
    return torch.sparse.sampled_addmm(at, a, b, beta=0.5).to_dense()


operation("sparse", "sparse_csc_tensor", _columns, lambda _: sparse.compressed(), dtypes=F32, ruled=True)
operation(
    "sparse",
    "sparse_bsr_tensor",
    _blocks,
    lambda make: (torch.tensor([0, 1, 2]), torch.tensor([1, 0]), make(2, 2, 3)),
    dtypes=F32,
    ruled=True,
)
operation(
    "sparse", "to_sparse_csc", _to_columns, lambda _: (sparse.matrix(),), dtypes=F32, ruled=True, bounds={}
)
operation(
    "sparse",
    "sparse.sampled_addmm",
    _sampled,
    lambda make: (*sparse.compressed(), make(sparse.ROWS, 3), make(3, sparse.COLUMNS)),
    dtypes=F32,
    calls="torch.sparse.sampled_addmm",
    ruled=True,
)


# Packed sequences ---------------------------------------------------------------------


class _Packed(nn.Module):
    """A sequence packed (and padded again); ends with the number of rows, or the lengths."""

    def __init__(self, *, back: bool) -> None:
        super().__init__()
        self.back = back

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = pack_padded_sequence(x, lengths)
        return pad_packed_sequence(packed, total_length=4) if self.back else (packed.data, lengths.sum())


for _name, _back in (("pack_padded_sequence", False), ("pad_packed_sequence", True)):
    operation(
        "rnn",
        _name,
        _Packed(back=_back),
        lambda make: (make(4, 3, 2), torch.tensor([4, 3, 1])),
        dtypes=F32,
        calls=f"torch.nn.utils.rnn.{_name}",
        ruled=True,
        bounds={},
    )
