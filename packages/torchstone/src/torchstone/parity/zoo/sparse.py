"""Sparse matrices: construction, conversion, their parts, products, reductions, and 2:4 sparsity.

A program represents a sparse tensor by its dense parts. If the number of nonzeros
depends on values, the parts are padded to a bound, and ``_nnz()`` is the true number.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.sparse import to_sparse_semi_structured

from .example import Example, model

ROWS, COLUMNS = 4, 6


def matrix() -> Tensor:
    """Return a dense matrix in which most elements are zero."""
    return torch.randn(ROWS, COLUMNS) * (torch.rand(ROWS, COLUMNS) < 0.4)


def parts() -> tuple[Tensor, Tensor]:
    """Return COO indices (two of them equal) and values."""
    return torch.tensor([[0, 1, 3, 3, 1], [2, 0, 5, 1, 0]]), torch.randn(5)


def compressed() -> tuple[Tensor, Tensor, Tensor]:
    """Return CSR row pointers, column indices and values."""
    return torch.tensor([0, 2, 2, 3, 5]), torch.tensor([0, 4, 1, 2, 5]), torch.randn(5)


def coo(indices: Tensor, values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(indices, values, (ROWS, COLUMNS))


class Halved(nn.Module):
    """A linear layer with at most two nonzeros among four neighboring weights."""

    def __init__(self) -> None:
        super().__init__()
        weight = torch.randn(64, 64)
        keep = weight.abs().unflatten(1, (-1, 4)).topk(2).indices
        mask = torch.zeros(64, 16, 4).scatter_(2, keep, 1.0).flatten(1)
        self.weight = nn.Parameter(weight * mask)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, to_sparse_semi_structured(self.weight))

    def dense(self, x: Tensor) -> Tensor:
        """Compute the layer with the dense weight."""
        return nn.functional.linear(x, self.weight)


@model
def sparse_coo_tensor() -> Example:
    """Create COO from indices/values"""
    return Example(lambda indices, values: coo(indices, values).to_dense(), parts(), ruled=True)


@model
def sparse_csr_tensor() -> Example:
    """Create CSR from compressed indices"""

    def build(rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        return torch.sparse_csr_tensor(rows, columns, values, (ROWS, COLUMNS)).to_dense()

    return Example(build, compressed(), ruled=True)


@model
def to_sparse_coo() -> Example:
    """Convert dense to COO"""

    def convert(x: Tensor) -> tuple[Tensor, Tensor, int]:
        sparse = x.to_sparse_coo()
        return sparse.indices(), sparse.values(), sparse._nnz()

    return Example(convert, (matrix(),), ruled=True, bounds={})


@model
def to_sparse_csr() -> Example:
    """Convert dense to CSR"""

    def convert(x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        sparse = x.to_sparse_csr()
        return sparse.crow_indices(), sparse.col_indices(), sparse.values(), sparse._nnz()

    return Example(convert, (matrix(),), ruled=True, bounds={})


@model
def to_sparse_bsr() -> Example:
    """Convert dense to BSR with block size"""

    def convert(x: Tensor) -> tuple[Tensor, Tensor, Tensor, int]:
        sparse = x.to_sparse_bsr((2, 3))
        return sparse.crow_indices(), sparse.col_indices(), sparse.values(), sparse._nnz()

    x = torch.zeros(8, 9)
    x[0, 4], x[3, 0], x[3, 8], x[7, 7] = 1.0, -2.0, 3.0, 4.0
    return Example(convert, (x,), ruled=True, bounds={})


@model
def sparse_mm() -> Example:
    """Sparse matrix multiplication"""
    return Example(
        lambda i, v, d: torch.sparse.mm(coo(i, v), d), (*parts(), torch.randn(COLUMNS, 3)), ruled=True
    )


@model
def sparse_addmm() -> Example:
    """Fused sparse matmul with add"""

    def fused(x: Tensor, indices: Tensor, values: Tensor, dense: Tensor) -> Tensor:
        return torch.sparse.addmm(x, coo(indices, values), dense, beta=0.5, alpha=2.0)

    return Example(fused, (torch.randn(ROWS, 3), *parts(), torch.randn(COLUMNS, 3)), ruled=True)


@model
def sparse_sum() -> Example:
    """Sum reduction on sparse"""

    def total(indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        x = coo(indices, values)
        return torch.sparse.sum(x), torch.sparse.sum(x, dim=0).to_dense()

    return Example(total, parts(), ruled=True)


@model
def sparse_softmax() -> Example:
    """Softmax over non-zeros"""

    def normalized(indices: Tensor, values: Tensor) -> Tensor:
        return torch.sparse.softmax(coo(indices, values), dim=1).to_dense()

    return Example(normalized, parts(), ruled=True)


@model
def sparse_indices() -> Example:
    """Access sparse components"""

    def access(x: Tensor) -> tuple[Tensor, int]:
        sparse = x.to_sparse()
        return sparse.indices(), sparse._nnz()

    return Example(access, (matrix(),), trains=False, ruled=True, bounds={})


@model
def sparse_values() -> Example:
    """Access sparse components"""

    def access(indices: Tensor, values: Tensor) -> tuple[Tensor, int]:
        sparse = coo(indices, values).coalesce()
        return sparse.values(), sparse._nnz()

    return Example(access, parts(), ruled=True, bounds={})


@model
def semi_structured_sparse() -> Example:
    """2:4 sparsity for NVIDIA GPUs"""
    layer = Halved()
    return Example(layer, (torch.randn(8, 64),), ruled=True, reference=layer.dense, trains=False)
