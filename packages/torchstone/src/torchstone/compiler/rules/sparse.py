"""Capture rules for sparse tensors: they are held by their dense parts.

:class:`Coordinates` stands in for COO tensors, :class:`Compressed` for CSR, CSC, BSR
and BSC ones, :class:`SemiStructured` for 2:4 sparsity. Entries that are only padding
have the index one past the end and the value zero, and come last; ``_nnz()`` is
the number of the others, a 0-d tensor where it depends on values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT, SparseSemiStructuredTensorCUTLASS

from ...errors import CaptureError
from ...lowering.sparse_operators import own
from .registry import StandIn, bound, capture_rule

Tensor = torch.Tensor


class _Sparse(StandIn):
    """What all layouts have in common; ``shape`` is the whole tensor's."""

    kind = "sparse"
    is_sparse = False
    layout: torch.layout

    def __init__(self, values: Tensor, shape: Sequence[int], count: Tensor | None) -> None:
        self._entries = values
        self.shape = torch.Size(shape)
        self._count = count
        self.dtype, self.device = values.dtype, values.device
        self.requires_grad = values.requires_grad

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return self.ndim

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def values(self) -> Tensor:
        return self._entries

    def _nnz(self) -> Any:
        return self._entries.shape[0] if self._count is None else self._count

    def coordinates(self) -> Coordinates:
        """The same tensor in COO layout."""
        raise NotImplementedError

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        dense = self.coordinates().to_dense()
        return dense if dtype is None else dense.to(dtype)

    def __matmul__(self, other: Tensor) -> Tensor:
        return multiplied(self, other)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Tensor):
            return self.to_dense() + other
        return NotImplemented

    __radd__ = __add__


class Coordinates(_Sparse):
    """COO: ``indices`` ``[sparse dims, n]`` and ``values`` ``[n, dense dims]``."""

    layout = torch.sparse_coo
    is_sparse = True

    def __init__(
        self,
        indices: Tensor,
        values: Tensor,
        shape: Sequence[int],
        count: Tensor | None = None,
        *,
        coalesced: bool = False,
    ) -> None:
        super().__init__(values, shape, count)
        self._where, self._coalesced = indices, coalesced

    @property
    def sparse_shape(self) -> list[int]:
        """The sizes of the sparse dimensions."""
        return list(self.shape[: self.sparse_dim()])

    def sparse_dim(self) -> int:
        return self._where.shape[0]

    def dense_dim(self) -> int:
        return self._entries.ndim - 1

    def is_coalesced(self) -> bool:
        return self._coalesced

    def indices(self) -> Tensor:
        self._require_coalesced("indices")
        return self._where

    def values(self) -> Tensor:
        self._require_coalesced("values")
        return self._entries

    def _require_coalesced(self, what: str) -> None:
        if not self._coalesced:
            raise RuntimeError(f"Cannot get {what} on an uncoalesced tensor, please call .coalesce() first")

    def _indices(self) -> Tensor:
        return self._where

    def _values(self) -> Tensor:
        return self._entries

    def parts(self) -> dict[str, Tensor]:
        """What a program returns."""
        found = {"indices": self._where, "values": self._entries}
        return found if self._count is None else {**found, "count": self._count}

    def coordinates(self) -> Coordinates:
        return self

    def coalesce(self) -> Coordinates:
        if self._coalesced:
            return self
        made = own.sparse_coalesce(self._where, self._entries, self.sparse_shape)
        return Coordinates(*made[:2], self.shape, made[2], coalesced=True)

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        dense = own.sparse_to_dense(self._where, self._entries, self.sparse_shape)
        return dense if dtype is None else dense.to(dtype)

    def mapped(self, values: Tensor) -> Coordinates:
        """The same places with other values."""
        return Coordinates(self._where, values, self.shape, self._count, coalesced=self._coalesced)

    def t(self) -> Coordinates:
        """The transpose of a matrix."""
        if self.sparse_dim() != 2 or self.dense_dim():
            raise CaptureError("t() is for sparse matrices", hint="make the tensor dense before")
        return Coordinates(self._where.flip(0), self._entries, self.shape[::-1], self._count)

    def __mul__(self, other: Any) -> Coordinates:
        if isinstance(other, (int, float)):
            return self.mapped(self._entries * other)
        return NotImplemented

    __rmul__ = __mul__

    def to_sparse_csr(self, dense_dim: int | None = None) -> Compressed:
        return Compressed.of(self.coalesce(), torch.sparse_csr, None)

    def to_sparse_csc(self, dense_dim: int | None = None) -> Compressed:
        return Compressed.of(self.t().coalesce(), torch.sparse_csc, None)


_BY_ROWS = (torch.sparse_csr, torch.sparse_bsr)
_BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)


class Compressed(_Sparse):
    """CSR, CSC, BSR or BSC: pointers into the other indices, and values (or blocks of them)."""

    def __init__(
        self,
        layout: torch.layout,
        pointers: Tensor,
        others: Tensor,
        values: Tensor,
        shape: Sequence[int],
        count: Tensor | None = None,
    ) -> None:
        if pointers.ndim != 1:
            raise CaptureError(f"a batch of {layout} matrices has no capture rule", hint="loop over the batch")
        super().__init__(values, shape, count)
        self.layout, self._pointers, self._others = layout, pointers, others

    @classmethod
    def of(cls, x: Coordinates, layout: torch.layout, shape: Sequence[int] | None) -> Compressed:
        """A coalesced matrix, whose first index becomes the compressed one."""
        first, second = x.indices()
        # Padding is at the end: no pointer reaches it.
        pointers = torch.searchsorted(first.contiguous(), torch.arange(x.shape[0] + 1))
        whole = shape or (x.shape if layout in _BY_ROWS else x.shape[::-1])
        return cls(layout, pointers, second.contiguous(), x.values(), whole, x._nnz())

    def crow_indices(self) -> Tensor:
        return self._named("crow_indices", self._pointers, rows=True)

    def col_indices(self) -> Tensor:
        return self._named("col_indices", self._others, rows=True)

    def ccol_indices(self) -> Tensor:
        return self._named("ccol_indices", self._pointers, rows=False)

    def row_indices(self) -> Tensor:
        return self._named("row_indices", self._others, rows=False)

    def _named(self, name: str, indices: Tensor, *, rows: bool) -> Tensor:
        if (self.layout in _BY_ROWS) is not rows:
            raise RuntimeError(f"{name} expected a tensor compressed by {'row' if rows else 'column'}")
        return indices

    def parts(self) -> dict[str, Tensor]:
        """What a program returns."""
        pointers, others = ("crow", "col") if self.layout in _BY_ROWS else ("ccol", "row")
        found = {
            f"{pointers}_indices": self._pointers,
            f"{others}_indices": self._others,
            "values": self._entries,
        }
        return found if self._count is None else {**found, "count": self._count}

    def coordinates(self) -> Coordinates:
        if self.layout in _BLOCKED:
            raise CaptureError(f"{self.layout} has no capture rule here", hint="call to_dense() before")
        return self._blocks()

    def _blocks(self) -> Coordinates:
        """The entries (blocks) by row and column of theirs."""
        entries = torch.arange(self._others.shape[0])
        # Behind the last pointer lies padding: it comes out one past the end.
        first = torch.searchsorted(self._pointers[1:].contiguous(), entries, right=True)
        pair = (first, self._others) if self.layout in _BY_ROWS else (self._others, first)
        count = self._count
        rows, columns = self.shape
        if self.layout in _BLOCKED:
            rows, columns = rows // self._entries.shape[1], columns // self._entries.shape[2]
        shape = (rows, columns, *self._entries.shape[1:])
        return Coordinates(torch.stack([p.to(torch.int64) for p in pair]), self._entries, shape, count)

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        dense = self._blocks().to_dense()
        if self.layout in _BLOCKED:
            dense = dense.permute(0, 2, 1, 3).reshape(self.shape)
        return dense if dtype is None else dense.to(dtype)


class SemiStructured(StandIn):
    """2:4 sparsity: half of the values of each row, and their places among each four."""

    kind = "semi-structured sparse"

    def __init__(self, values: Tensor, places: Tensor) -> None:
        self._entries, self._places = values, places
        self.shape = torch.Size((values.shape[0], values.shape[1] * 2))
        self.dtype, self.device = values.dtype, values.device

    def values(self) -> Tensor:
        return self._entries

    def indices(self) -> Tensor:
        return self._places

    def parts(self) -> dict[str, Tensor]:
        """What a program returns."""
        return {"values": self._entries, "places": self._places}

    def to_dense(self) -> Tensor:
        return own.semi_structured_to_dense(self._entries, self._places)


# Construction -------------------------------------------------------------------------


@capture_rule(torch.sparse_coo_tensor)
def sparse_coo_tensor(
    indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: Any = None, **options: Any
) -> Coordinates:
    """COO from indices and values; a program cannot take the size from the largest indices."""
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
        pointers: Any, others: Any, values: Any, size: Sequence[int] | None = None, *, dtype: Any = None, **_: Any
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


@capture_rule(torch.Tensor.to_sparse_coo)
def to_sparse_coo(self: Any) -> Any:
    """Dense to COO, with as many entries as are declared, or as there are elements."""
    return to_sparse(self)


@capture_rule(torch.Tensor.to_sparse)
def to_sparse(
    self: Any, sparse_dim: int | None = None, *, layout: Any = None, blocksize: Any = None, **_: Any
) -> Any:
    """Dense to any layout."""
    if isinstance(self, StandIn):
        return NotImplemented
    if layout not in (None, torch.sparse_coo):
        return _CONVERSIONS[layout](self, *([blocksize] if blocksize else []))
    dims = self.ndim if sparse_dim is None else sparse_dim
    places = torch.Size(self.shape[:dims]).numel()
    count = bound("nonzeros", "the number of nonzeros", places)
    made = own.to_sparse_coo(self, dims, min(count, places))
    return Coordinates(*made[:2], self.shape, made[2], coalesced=True)


@capture_rule(torch.Tensor.to_sparse_csr)
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Compressed:
    """Dense to CSR."""
    return Compressed.of(to_sparse(self, 2), torch.sparse_csr, None)


@capture_rule(torch.Tensor.to_sparse_csc)
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Compressed:
    """Dense to CSC."""
    return Compressed.of(to_sparse(self.transpose(0, 1), 2), torch.sparse_csc, None)


def _blocked(self: Tensor, blocksize: Sequence[int]) -> Tensor:
    high, wide = blocksize
    return self.reshape(self.shape[0] // high, high, self.shape[1] // wide, wide).permute(0, 2, 1, 3)


@capture_rule(torch.Tensor.to_sparse_bsr)
def to_sparse_bsr(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Compressed:
    """Dense to BSR: blocks with at least one nonzero."""
    return Compressed.of(to_sparse(_blocked(self, blocksize), 2), torch.sparse_bsr, self.shape)


@capture_rule(torch.Tensor.to_sparse_bsc)
def to_sparse_bsc(self: Tensor, blocksize: Sequence[int], dense_dim: int | None = None) -> Compressed:
    """Dense to BSC: blocks with at least one nonzero, column by column."""
    blocks = _blocked(self, blocksize).transpose(0, 1)
    return Compressed.of(to_sparse(blocks, 2), torch.sparse_bsc, self.shape)


_CONVERSIONS = {
    torch.sparse_csr: to_sparse_csr,
    torch.sparse_csc: to_sparse_csc,
    torch.sparse_bsr: to_sparse_bsr,
    torch.sparse_bsc: to_sparse_bsc,
}


@capture_rule(
    (SparseSemiStructuredTensorCUTLASS, "from_dense"), (SparseSemiStructuredTensorCUSPARSELT, "from_dense")
)
def semi_structured(original_tensor: Tensor, *_: Any, **__: Any) -> SemiStructured:
    """2:4 sparsity, which PyTorch itself has on accelerators only."""
    rows, columns = original_tensor.shape
    if columns % 4:
        raise CaptureError(f"2:4 sparsity needs rows of a multiple of 4 elements, found {columns}")
    return SemiStructured(*own.to_sparse_semi_structured(original_tensor))


# Operations ---------------------------------------------------------------------------


@capture_rule(
    torch.sparse.mm, torch.mm, torch.matmul, torch.Tensor.mm, torch.Tensor.matmul, torch.Tensor.__matmul__
)
def multiplied(self: Any, mat2: Any, *rest: Any) -> Any:
    """A sparse matrix times a dense one, or a dense one times a sparse one."""
    if isinstance(self, SemiStructured):
        return torch.mm(self.to_dense(), mat2)
    if isinstance(mat2, _Sparse) and isinstance(self, Tensor):
        return multiplied(mat2.coordinates().t(), self.T).T
    if not isinstance(self, _Sparse) or not isinstance(mat2, Tensor) or rest:
        return NotImplemented
    if mat2.ndim == 1:
        return multiplied(self, mat2[:, None])[:, 0]
    x = self.coordinates()
    return own.sparse_mm(x._indices(), x._values(), x.sparse_shape, mat2)


@capture_rule(torch.sparse.addmm, torch.addmm)
def sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * self + alpha * mat1 @ mat2`` with a sparse ``mat1``."""
    if not isinstance(mat1, _Sparse):
        return NotImplemented
    x = mat1.coordinates()
    return own.sparse_addmm(
        self, x._indices(), x._values(), x.sparse_shape, mat2, beta=beta, alpha=alpha
    )


@capture_rule(torch.sparse.sampled_addmm)
def sampled_addmm(self: Any, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """``beta * self + alpha * mat1 @ mat2`` at the entries of a CSR matrix."""
    if not isinstance(self, Compressed):
        return NotImplemented
    x = self.coordinates()
    made = own.sparse_sampled_addmm(x._values(), x._indices(), mat1, mat2, beta=beta, alpha=alpha)
    return Compressed(self.layout, self._pointers, self._others, made, self.shape, self._count)


@capture_rule(torch._sparse_sum)
def sparse_sum(self: Any, dim: Any = None, *, dtype: torch.dtype | None = None) -> Any:
    """The sum over all dimensions, or over some of the sparse and dense ones."""
    if not isinstance(self, _Sparse):
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
    made = own.sparse_sum(x._indices(), entries, x.sparse_shape, sparse)
    return Coordinates(*made[:2], kept, made[2], coalesced=True)


def _softmax(log: bool) -> Any:
    def softmax(input: Any, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        if not isinstance(input, Coordinates):
            return NotImplemented
        x = input.coalesce()
        if x.dense_dim():
            raise CaptureError("softmax of a sparse tensor with dense dimensions has no capture rule")
        values = x.values() if dtype is None else x.values().to(dtype)
        return x.mapped(own.sparse_softmax(x.indices(), values, x.sparse_shape, dim % x.ndim, log))

    return softmax


capture_rule(torch.sparse.softmax)(_softmax(False))
capture_rule(torch.sparse.log_softmax)(_softmax(True))


@capture_rule(torch.nn.functional.linear)
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """A linear layer with 2:4 sparse, or sparse, weights."""
    if isinstance(weight, SemiStructured):
        return torch.nn.functional.linear(input, weight.to_dense(), bias)
    if isinstance(weight, _Sparse) and isinstance(input, Tensor):
        rows = multiplied(weight, input.flatten(0, -2).T).T
        made = rows.unflatten(0, input.shape[:-1]) if input.ndim != 2 else rows
        return made if bias is None else made + bias
    return NotImplemented
