"""Capture rules for sparse tensors: construction, conversion, products, reductions, 2:4 sparsity.

The classes of the results are in :mod:`.sparse_values`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS

from ...errors import CaptureError
from ...lowering.own import own
from ...torch_internals import tensors
from .registry import StandIn, bound, capture_rule
from .sparse_values import Compressed, Coordinates, SemiStructured, Sparse

Tensor = torch.Tensor

# Construction -------------------------------------------------------------------------


@capture_rule(torch.sparse_coo_tensor)
def sparse_coo_tensor(
    indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: Any = None, **options: Any
) -> Coordinates:
    """Make a COO tensor from indices and values; raises :class:`CaptureError` without ``size``."""
    if size is None:
        raise CaptureError(
            "the size of sparse_coo_tensor without size= depends on values, and shapes do not",
            hint="pass size=",
        )
    values = torch.as_tensor(values, dtype=dtype)
    indices = torch.as_tensor(indices).to(torch.int64)
    return Coordinates(indices, values, size, coalesced=bool(options.get("is_coalesced")))


def _constructor(layout: torch.layout) -> Any:
    def construct(
        pointers: Any,
        others: Any,
        values: Any,
        size: Sequence[int] | None = None,
        *,
        dtype: Any = None,
        **_: Any,
    ) -> Compressed:
        if size is None:
            raise CaptureError(
                f"the size of a {layout} tensor without size= depends on values, and shapes do not",
                hint="pass size=",
            )
        parts = (torch.as_tensor(pointers), torch.as_tensor(others), torch.as_tensor(values, dtype=dtype))
        return Compressed(layout, *parts, size)

    return construct


for _name in ("csr", "csc", "bsr", "bsc"):
    capture_rule(getattr(torch, f"sparse_{_name}_tensor"))(_constructor(getattr(torch, f"sparse_{_name}")))


@capture_rule(torch.Tensor.to_sparse_coo, of=[own.to_sparse_coo])
def to_sparse_coo(self: Any) -> Any:
    """Convert a dense tensor to COO, with the declared number of entries, or one for each element."""
    return to_sparse(self)


@capture_rule(torch.Tensor.to_sparse, of=[own.to_sparse_coo])
def to_sparse(
    self: Any, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, **_: Any
) -> Any:
    """Convert a dense tensor to any sparse layout."""
    if isinstance(self, StandIn):
        return NotImplemented
    if layout not in (None, torch.sparse_coo):
        return _CONVERSIONS[layout](self, *([blocksize] if blocksize else []))
    dims = self.ndim if sparse_dim is None else sparse_dim
    places = torch.Size(self.shape[:dims]).numel()
    count = bound("nonzeros", "the number of nonzeros", places)
    indices, values, true = own.to_sparse_coo(self, dims, min(count, places))
    return Coordinates(indices, values, self.shape, true, coalesced=True)


@capture_rule(torch.Tensor.to_sparse_csr)
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Compressed:
    """Convert a dense tensor to CSR."""
    return Compressed.of(to_sparse(self, 2), torch.sparse_csr, None)


@capture_rule(torch.Tensor.to_sparse_csc)
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Compressed:
    """Convert a dense tensor to CSC."""
    return Compressed.of(to_sparse(self.transpose(0, 1), 2), torch.sparse_csc, None)


def _blocked(self: Tensor, blocksize: Sequence[int]) -> Tensor:
    high, wide = blocksize
    return self.reshape(self.shape[0] // high, high, self.shape[1] // wide, wide).permute(0, 2, 1, 3)


@capture_rule(torch.Tensor.to_sparse_bsr)
def to_sparse_bsr(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Compressed:
    """Convert a dense tensor to BSR: blocks with at least one nonzero."""
    return Compressed.of(to_sparse(_blocked(self, blocksize), 2), torch.sparse_bsr, self.shape)


@capture_rule(torch.Tensor.to_sparse_bsc)
def to_sparse_bsc(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Compressed:
    """Convert a dense tensor to BSC: blocks with at least one nonzero, column by column."""
    blocks = _blocked(self, blocksize).transpose(0, 1)
    return Compressed.of(to_sparse(blocks, 2), torch.sparse_bsc, self.shape)


_CONVERSIONS: dict[torch.layout, Callable[..., Compressed]] = {
    torch.sparse_csr: to_sparse_csr,
    torch.sparse_csc: to_sparse_csc,
    torch.sparse_bsr: to_sparse_bsr,
    torch.sparse_bsc: to_sparse_bsc,
}


@capture_rule(
    (SparseSemiStructuredTensorCUTLASS, "from_dense"),
    (SparseSemiStructuredTensorCUSPARSELT, "from_dense"),
    of=[own.to_sparse_semi_structured],
)
def semi_structured(original_tensor: Tensor, *_: Any, **__: Any) -> SemiStructured:
    """Convert a dense matrix to 2:4 sparsity, which PyTorch itself has only on accelerators."""
    columns = original_tensor.shape[1]
    if columns % 4:
        raise CaptureError(f"2:4 sparsity needs rows of a multiple of 4 elements, found {columns}")
    return SemiStructured(*own.to_sparse_semi_structured(original_tensor))


# Operations ---------------------------------------------------------------------------


_PRODUCTS = (torch.mm, torch.matmul, torch.Tensor.mm, torch.Tensor.matmul, torch.Tensor.__matmul__)


@capture_rule(*_PRODUCTS, of=[own.sparse_mm, own.semi_structured_to_dense])
def multiplied(self: Any, mat2: Any, *rest: Any) -> Any:
    """Multiply a sparse matrix by a dense one, or a dense one by a sparse one."""
    if isinstance(self, SemiStructured):
        return torch.mm(self.to_dense(), mat2)
    if isinstance(mat2, Sparse) and isinstance(self, Tensor):
        return mat2.coordinates().t().times(self.T).T
    if not isinstance(self, Sparse) or not isinstance(mat2, Tensor) or rest:
        return NotImplemented
    return self.times(mat2)


@capture_rule(torch.sparse.mm, of=[own.sparse_mm])
def sparse_mm(mat1: Any, mat2: Any, reduce: str = "sum") -> Any:
    """Multiply by a sparse matrix, or take the mean or an extreme of the terms instead of their sum."""
    if reduce == "sum":
        return multiplied(mat1, mat2)
    if not isinstance(mat1, Compressed) or mat1.layout is not torch.sparse_csr:
        return NotImplemented
    if reduce == "mean":
        counts = mat1.crow_indices().diff().clamp(min=1)
        return mat1.times(mat2) / counts.to(mat2.dtype)[:, None]
    return _extreme_terms(mat1.coordinates(), mat2, reduce)


def _extreme_terms(x: Coordinates, mat2: Tensor, reduce: str) -> Tensor:
    """Return the largest (``amax``) or smallest term of each element of ``x @ mat2``; 0 without terms.

    The first of equal terms is taken, and gets the gradient.
    """
    size = (x.shape[0] + 1, mat2.shape[1])  # one extra row for padding entries
    rows, columns = x._indices()
    terms = x._values()[:, None] * mat2[columns.clamp(max=x.shape[1] - 1)]
    rows = rows[:, None].expand_as(terms)
    best = terms.detach().new_zeros(size).scatter_reduce(0, rows, terms.detach(), reduce, include_self=False)
    count = terms.shape[0]
    places = torch.where(terms == best.gather(0, rows), torch.arange(count)[:, None], count)
    first = places.new_full(size, count).scatter_reduce(0, rows, places, "amin")
    found = torch.cat([terms, terms.new_zeros((1, size[1]))]).gather(0, first)
    return torch.where(best.isnan(), best, found)[:-1]


@capture_rule(torch.add, torch.Tensor.add, of=[own.sparse_to_dense])
def added(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """Add a sparse tensor to a dense one."""
    if not isinstance(other, Sparse) or not isinstance(input, Tensor):
        return NotImplemented
    return torch.add(input, other.to_dense(), alpha=alpha)


@capture_rule(torch.sparse.addmm, torch.addmm, of=[own.sparse_addmm])
def sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * self + alpha * mat1 @ mat2`` for a sparse ``mat1``."""
    if not isinstance(mat1, Sparse):
        return NotImplemented
    x = mat1.coordinates()
    return own.sparse_addmm(self, x._indices(), x._values(), x.sparse_shape, mat2, beta=beta, alpha=alpha)


@capture_rule(torch.sparse.sampled_addmm, of=[own.sparse_sampled_addmm])
def sampled_addmm(self: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Return ``beta * self + alpha * mat1 @ mat2`` at the entries of the CSR matrix ``self``."""
    if not isinstance(self, Compressed):
        return NotImplemented
    x = self.coordinates()
    made = own.sparse_sampled_addmm(x._values(), x._indices(), mat1, mat2, beta=beta, alpha=alpha)
    return Compressed(self.layout, self._pointers, self._others, made, self.shape, self._count)


@capture_rule(tensors.sparse_sum, of=[own.sparse_sum])
def sparse_sum(self: Any, dim: Any = None, *, dtype: torch.dtype | None = None) -> Any:
    """Sum over all dimensions, or over some of the sparse and dense ones."""
    if not isinstance(self, Sparse):
        return NotImplemented
    x = self.coordinates()
    entries = x._values() if dtype is None else x._values().to(dtype)
    if dim is None:
        return entries.sum()
    axes = sorted(axis % x.ndim for axis in ([dim] if isinstance(dim, int) else dim))
    sparse = [axis for axis in axes if axis < x.sparse_dim()]
    dense = [axis - x.sparse_dim() + 1 for axis in axes if axis >= x.sparse_dim()]
    entries = entries.sum(dense) if dense else entries
    if len(sparse) == x.sparse_dim():
        return entries.sum(0)
    kept = [size for axis, size in enumerate(x.shape) if axis not in axes]
    if not sparse:
        return Coordinates(x._indices(), entries, kept, x._count, coalesced=x.is_coalesced())
    indices, entries, count, _ = own.sparse_sum(x._indices(), entries, x.sparse_shape, sparse)
    return Coordinates(indices, entries, kept, count, coalesced=True)


def _softmax(log: bool) -> Any:
    def softmax(input: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        if not isinstance(input, Coordinates):
            return NotImplemented
        x, axis = input.coalesce(), dim % input.ndim
        values = x.values() if dtype is None else x.values().to(dtype)
        if axis < x.sparse_dim():
            return x.mapped(own.sparse_softmax(x.indices(), values, x.sparse_shape, axis, log))
        made = (torch.log_softmax if log else torch.softmax)(values, axis - x.sparse_dim() + 1)
        return x.mapped(x.only_entries(made))

    return softmax


capture_rule(torch.sparse.softmax, of=[own.sparse_softmax])(_softmax(False))
capture_rule(torch.sparse.log_softmax, of=[own.sparse_softmax])(_softmax(True))


@capture_rule(torch.nn.functional.linear, of=[own.sparse_mm, own.semi_structured_to_dense])
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """Apply a linear layer with sparse or 2:4 sparse weights."""
    if isinstance(weight, SemiStructured):
        return torch.nn.functional.linear(input, weight.to_dense(), bias)
    if isinstance(weight, Sparse) and isinstance(input, Tensor):
        rows = weight.times(input.flatten(0, -2).T).T
        made = rows.unflatten(0, input.shape[:-1]) if input.ndim != 2 else rows
        return made if bias is None else made + bias
    return NotImplemented
