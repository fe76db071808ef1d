"""Stand-ins for sparse tensors in captured models, which consist of dense parts.

:class:`Coordinates` stands in for COO tensors, :class:`Compressed` for CSR, CSC, BSR
and BSC ones, :class:`SemiStructured` for 2:4 sparsity. Padding entries have
the index one past the end and the value zero, and come last. ``_nnz()`` is
the number of other entries, a 0-d tensor if it depends on values. Not here: the
functions that make and take these stand-ins (:mod:`.sparse`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...errors import CaptureError
from ...lowering.own import own
from .registry import StandIn

Tensor = torch.Tensor


class Sparse(StandIn):
    """A sparse tensor of any layout; ``shape`` is the shape of the whole tensor."""

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
        """Return the same tensor in COO layout."""
        raise NotImplementedError

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        dense = self.coordinates().to_dense()
        return dense if dtype is None else dense.to(dtype)

    def times(self, dense: Tensor) -> Tensor:
        """Multiply this matrix by a dense matrix or vector."""
        if dense.ndim == 1:
            return self.times(dense[:, None])[:, 0]
        x = self.coordinates()
        return own.sparse_mm(x._indices(), x._values(), x.sparse_shape, dense)

    def __matmul__(self, other: Any) -> Any:
        return self.times(other) if isinstance(other, Tensor) else NotImplemented


class Coordinates(Sparse):
    """A COO tensor: ``indices`` ``[sparse dims, n]`` and ``values`` ``[n, dense dims]``."""

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
        """Return the dense tensors that a program returns for this, by name."""
        found = {"indices": self._where, "values": self._entries}
        return found if self._count is None else {**found, "count": self._count}

    def coordinates(self) -> Coordinates:
        return self

    def coalesce(self) -> Coordinates:
        if self._coalesced:
            return self
        indices, values, count, _ = own.sparse_coalesce(self._where, self._entries, self.sparse_shape)
        return Coordinates(indices, values, self.shape, count, coalesced=True)

    def to_dense(self, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        dense = own.sparse_to_dense(self._where, self._entries, self.sparse_shape)
        return dense if dtype is None else dense.to(dtype)

    def mapped(self, values: Tensor) -> Coordinates:
        """Return a tensor with other values at the same places."""
        return Coordinates(self._where, values, self.shape, self._count, coalesced=self._coalesced)

    def only_entries(self, values: Tensor) -> Tensor:
        """Return ``values`` with zeros for padding entries."""
        if self._count is None:
            return values
        there = torch.arange(values.shape[0]) < self._count
        return torch.where(there.reshape(-1, *[1] * (values.ndim - 1)), values, 0)

    def t(self) -> Coordinates:
        """Return the transpose of a matrix."""
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


class Compressed(Sparse):
    """A CSR, CSC, BSR or BSC tensor: pointers into the other indices, and values (or blocks of values)."""

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
            raise CaptureError(
                f"a batch of {layout} matrices has no capture rule", hint="loop over the batch"
            )
        super().__init__(values, shape, count)
        self.layout, self._pointers, self._others = layout, pointers, others

    @classmethod
    def of(cls, x: Coordinates, layout: torch.layout, shape: Sequence[int] | None) -> Compressed:
        """Compress a coalesced matrix along its first index."""
        first, second = x.indices()
        # Padding is at the end, where no pointer reaches it.
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
        """Return the dense tensors that a program returns for this, by name."""
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
        """Return the entries, or blocks, as a COO tensor over rows and columns, or those of blocks."""
        entries = torch.arange(self._others.shape[0])
        # Padding comes after the last pointer, so its index is one past the end.
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
    """A 2:4 sparse matrix: half of the values of each row, and their places in their groups of four."""

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
        """Return the dense tensors that a program returns for this, by name."""
        return {"values": self._entries, "places": self._places}

    def to_dense(self) -> Tensor:
        return own.semi_structured_to_dense(self._entries, self._places)
