"""Operators of quantized and sparse tensors; each call returns dense tensors, which can be compared."""

from __future__ import annotations

from .call import Call, Operator, family

_Q = "torch.quantize_per_tensor(x, 0.05, 64, torch.quint8)"
_P = "torch.quantize_per_tensor(y, 0.1, 50, torch.quint8)"
_IMAGE = "torch.quantize_per_tensor(image, 0.05, 64, torch.quint8)"
_KEPT = ("weight", "bias", "running_mean", "running_var")
_STATISTICS = ", ".join(f"nn.BatchNorm2d(4).{name}" for name in _KEPT)

family(
    "quantization",
    {
        "quantize_per_tensor": [
            "torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).int_repr()",
            "torch.quantize_per_tensor(x, 0.1, -3, torch.qint8).int_repr()",
        ],
        "dequantize": [f"{_Q}.dequantize()", f"torch.dequantize({_Q})"],
        "fake_quantize_per_tensor_affine": ["torch.fake_quantize_per_tensor_affine(x, 0.1, 10, 0, 255)"],
        "fake_quantize_per_channel_affine": [
            "torch.fake_quantize_per_channel_affine(x, scales, zeros, 1, -128, 127)"
        ],
        "quantized_linear": [f"torch.ao.nn.quantized.Linear(4, 2)({_Q}).dequantize()"],
        "quantized_conv2d": [
            f"torch.ao.nn.quantized.Conv2d(4, 3, 3, padding=1)({_IMAGE}).dequantize()",
        ],
        "quantized_batch_norm": [
            f"torch.ops.quantized.batch_norm2d({_IMAGE}, {_STATISTICS}, 1e-5, 0.1, 60).dequantize()",
        ],
        "quantized_add": [f"torch.ops.quantized.add({_Q}, {_P}, 0.1, 60).dequantize()"],
        "quantized_mul": [f"torch.ops.quantized.mul({_Q}, {_P}, 0.2, 60).dequantize()"],
        "quantized_relu": [f"torch.relu({_Q}).dequantize()"],
        "int_repr": [f"{_Q}.int_repr()"],
        "q_scale": [f"({_Q}.dequantize(), {_Q}.q_scale())"],
        "q_zero_point": [f"({_Q}.dequantize(), {_Q}.q_zero_point())"],
    },
    ruled=True,
)

_COO = "torch.sparse_coo_tensor(indices, entries, (4, 6))"
_CSR = "torch.sparse_csr_tensor(crow, columns, entries, (4, 6))"
_PADDED = "the number of entries depends on values: they are padded to torchstone.bounds(nonzeros=...)"


def _parts(conversion: str, *parts: str) -> Operator:
    """Return an operator that gives the dense parts of a conversion; the example has eight entries."""
    text = ", ".join(f"sparse.{conversion}.{part}()" for part in parts)
    return Operator([Call(f"({text})", ruled=True)], {"nonzeros": 8}, _PADDED)


family(
    "sparse",
    {
        "sparse_coo_tensor": [f"{_COO}.to_dense()"],
        "sparse_csr_tensor": [f"{_CSR}.to_dense()"],
        "sparse_csc_tensor": ["torch.sparse_csc_tensor(ccol, row_places, entries, (4, 6)).to_dense()"],
        "sparse_bsr_tensor": [
            "torch.sparse_bsr_tensor(block_rows, block_columns, blocks, (4, 6)).to_dense()"
        ],
        "to_sparse": _parts("to_sparse()", "indices", "values"),
        "to_sparse_coo": _parts("to_sparse_coo()", "indices", "values"),
        "to_sparse_csr": _parts("to_sparse_csr()", "crow_indices", "col_indices", "values"),
        "to_sparse_csc": _parts("to_sparse_csc()", "ccol_indices", "row_indices", "values"),
        "to_sparse_bsr": Operator(
            [
                Call(
                    "(blocky.to_sparse_bsr((2, 3)).crow_indices(), blocky.to_sparse_bsr((2, 3)).values())",
                    ruled=True,
                )
            ],
            {"nonzeros": 2},
            _PADDED,
        ),
        "to_dense": [f"{_COO}.to_dense()", f"{_CSR}.to_dense()"],
        "coalesce": [f"{_COO}.coalesce().to_dense()"],
        "indices": ["torch.sparse_coo_tensor(sorted_indices, entries, (4, 6)).coalesce().indices()"],
        "values": ["torch.sparse_coo_tensor(sorted_indices, entries, (4, 6)).coalesce().values()"],
        "crow_indices": [f"{_CSR}.crow_indices()"],
        "col_indices": [f"{_CSR}.col_indices()"],
        "nnz": ["sparse.to_sparse()._nnz()", f"{_CSR}._nnz()"],
        "sparse.mm": [f"torch.sparse.mm({_COO}, square)"],
        "sparse.addmm": [f"torch.sparse.addmm(base, {_COO}, right.mT, beta=0.5, alpha=2.0)"],
        "sparse.sampled_addmm": [
            f"torch.sparse.sampled_addmm({_CSR}, left, right, beta=0.5, alpha=2.0).to_dense()"
        ],
        "sparse.sum": [f"torch.sparse.sum({_COO})", f"torch.sparse.sum({_COO}, dim=0).to_dense()"],
        "sparse.softmax": [f"torch.sparse.softmax({_COO}, dim=1).to_dense()"],
        "to_sparse_semi_structured": Operator(
            [
                Call(
                    "F.linear(features, torch.sparse.to_sparse_semi_structured(halved))",
                    ruled=True,
                    eager="F.linear(features, halved)",
                )
            ],
            trains=False,
            reason="PyTorch has it on accelerators only: compared with the dense product",
        ),
    },
    ruled=True,
)
