"""Operators on the dense parts of sparse tensors: shape rules, CPU kernels, derivatives.

A sparse tensor is represented by int64 ``indices`` ``[sparse dims, n]`` and ``values`` ``[n, …]``.
The number of entries n is part of the shape. Padding entries have an index one past
the end in every dimension, and zero values. They come last, and ``count`` (0-d int64)
is the number of actual entries.

Most CPU kernels call PyTorch's own sparse operators. Not here: the lowerings
(``aten/sparse``), and the rules that replace PyTorch's calls (``compiler.rules.sparse``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from ...lowering.own import own
from .declaring import differentiate, implement

Tensor = torch.Tensor


def _there(indices: Tensor, size: Sequence[int]) -> Tensor:
    """Return a mask of the entries that are not padding: bool ``[n]``."""
    return (indices < torch.tensor(size)[:, None]).all(0)


def _coo(indices: Tensor, values: Tensor, size: Sequence[int]) -> Tensor:
    """Return PyTorch's sparse tensor with the actual entries."""
    kept = _there(indices, size)
    shape = (*size, *values.shape[1:])
    return torch.sparse_coo_tensor(indices[:, kept], values[kept], shape, check_invariants=False)


def _padded(sparse: Tensor, size: Sequence[int], bound: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return indices and values of a coalesced tensor, cut or padded to ``bound``, and the true count."""
    indices, values = sparse.indices()[:, :bound], sparse.values()[:bound]
    missing = bound - indices.shape[1]
    end = torch.tensor(size)[:, None].expand(-1, missing)
    zeros = values.new_zeros((missing, *values.shape[1:]))
    return torch.cat([indices, end], 1), torch.cat([values, zeros]), torch.tensor(sparse._nnz())


# Conversion ---------------------------------------------------------------------------


def _to_coo(self: Tensor, sparse_dim: int, bound: int) -> tuple[Tensor, Tensor, Tensor]:
    return _padded(self.to_sparse(sparse_dim).coalesce(), self.shape[:sparse_dim], bound)


def _to_coo_shapes(self: Tensor, sparse_dim: int, bound: int) -> tuple[Tensor, Tensor, Tensor]:
    indices = self.new_empty((sparse_dim, bound), dtype=torch.int64)
    return indices, self.new_empty((bound, *self.shape[sparse_dim:])), indices.new_empty(())


def _to_dense(indices: Tensor, values: Tensor, size: Sequence[int]) -> Tensor:
    return _coo(indices, values, size).to_dense()


def _take(self: Tensor, indices: Tensor) -> Tensor:
    there = _there(indices, self.shape[: indices.shape[0]])
    found = self[tuple(torch.where(there, indices, 0))]
    return torch.where(there.reshape(-1, *[1] * (found.ndim - 1)), found, 0)


implement(
    "to_sparse_coo",
    _to_coo,
    _to_coo_shapes,
)
implement(
    "sparse_to_dense",
    _to_dense,
    lambda indices, values, size: values.new_empty((*size, *values.shape[1:])),
)
implement(
    "sparse_take",
    _take,
    lambda self, indices: self.new_empty((indices.shape[1], *self.shape[indices.shape[0] :])),
)


def _keep_coo(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[0])
    ctx.size = inputs[0].shape[: inputs[1]]


differentiate(
    "to_sparse_coo",
    lambda ctx, _, grad, __: (own.sparse_to_dense(ctx.saved_tensors[0], grad, ctx.size), None, None),
    _keep_coo,
    through="sparse_to_dense",
)
differentiate(
    "sparse_to_dense",
    lambda ctx, grad: (None, own.sparse_take(grad, ctx.saved_tensors[0]), None),
    lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    through="sparse_take",
)


def _keep_take(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[1])
    ctx.size = inputs[0].shape[: inputs[1].shape[0]]


differentiate(
    "sparse_take",
    lambda ctx, grad: (own.sparse_to_dense(ctx.saved_tensors[0], grad, ctx.size), None),
    _keep_take,
    through="sparse_to_dense",
)


# Equal indices ------------------------------------------------------------------------


def _sum(
    indices: Tensor, values: Tensor, size: Sequence[int], dim: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_axes(size, dim)
    rest = [axis for axis in range(len(size)) if axis not in dim]
    there, kept = _there(indices, size), [size[axis] for axis in rest]
    end = torch.tensor(kept)[:, None]
    indices = torch.where(there, indices[rest], end)
    found = _padded(_coo(indices, values, kept).coalesce(), kept, indices.shape[1])
    same = (indices[:, :, None] == found[0][:, None, :]).all(0)
    return *found, same.int().argmax(1)


def _check_axes(size: Sequence[int], dim: Sequence[int]) -> None:
    wrong = [axis for axis in dim if not 0 <= axis < len(size)]
    if wrong:
        raise IndexError(f"dim {wrong[0]} is out of range for a sparse tensor of {len(size)} dimensions")


def _sum_shapes(
    indices: Tensor, values: Tensor, size: Sequence[int], dim: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check_axes(size, dim)
    count = indices.shape[1]
    kept = indices.new_empty((len(size) - len(dim), count))
    return kept, torch.empty_like(values), indices.new_empty(()), indices.new_empty((count,))


def _coalesce(indices: Tensor, values: Tensor, size: Sequence[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _sum(indices, values, size, [])


def _keep_places(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[3])


def _spread(ctx: Any, _: Any, grad: Tensor, *__: Any) -> Tensor:
    return grad.index_select(0, ctx.saved_tensors[0])


implement(
    "sparse_coalesce",
    _coalesce,
    lambda indices, values, size: _sum_shapes(indices, values, size, []),
)
implement(
    "sparse_sum",
    _sum,
    _sum_shapes,
)
differentiate(
    "sparse_coalesce", lambda *given: (None, _spread(*given), None), _keep_places, through="index_select"
)
differentiate(
    "sparse_sum",
    lambda *given: (None, _spread(*given), None, None),
    _keep_places,
    through="index_select",
)


# Products -----------------------------------------------------------------------------


def _mm(indices: Tensor, values: Tensor, size: Sequence[int], mat2: Tensor) -> Tensor:
    return torch.sparse.mm(_coo(indices, values, size), mat2)


def _sampled(indices: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    return _take(mat1 @ mat2, indices)


def _addmm(
    self: Tensor,
    indices: Tensor,
    values: Tensor,
    size: Sequence[int],
    mat2: Tensor,
    beta: float = 1,
    alpha: float = 1,
) -> Tensor:
    return torch.sparse.addmm(self, _coo(indices, values, size), mat2, beta=beta, alpha=alpha)


def _sampled_addmm(
    self: Tensor, indices: Tensor, mat1: Tensor, mat2: Tensor, beta: float = 1, alpha: float = 1
) -> Tensor:
    return beta * self + alpha * _sampled(indices, mat1, mat2)


implement(
    "sparse_mm",
    _mm,
    lambda indices, values, size, mat2: mat2.new_empty((size[0], mat2.shape[1])),
)
implement(
    "sparse_sampled_mm",
    _sampled,
    lambda indices, mat1, mat2: mat1.new_empty((indices.shape[1],)),
)
implement(
    "sparse_addmm",
    _addmm,
    lambda self, indices, values, size, mat2, beta=1, alpha=1: mat2.new_empty((size[0], mat2.shape[1])),
)
implement(
    "sparse_sampled_addmm",
    _sampled_addmm,
    lambda self, indices, mat1, mat2, beta=1, alpha=1: torch.empty_like(self),
)


def _gradients_of_mm(
    indices: Tensor, values: Tensor, size: Sequence[int], mat2: Tensor, grad: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``values`` and ``mat2``."""
    of_values = own.sparse_sampled_mm(indices, grad, mat2.mH)
    return of_values, own.sparse_mm(indices.flip(0), values.conj(), list(size)[::-1], grad)


def _keep_mm(ctx: Any, inputs: Any, output: Any) -> None:
    indices, values, ctx.size, mat2 = inputs
    ctx.save_for_backward(indices, values, mat2)


def _mm_backward(ctx: Any, grad: Tensor) -> Any:
    indices, values, mat2 = ctx.saved_tensors
    of_values, of_mat2 = _gradients_of_mm(indices, values, ctx.size, mat2, grad)
    return None, of_values, None, of_mat2


def _keep_addmm(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    matrix, indices, values, ctx.size, mat2 = inputs
    ctx.shape, ctx.factors = matrix.shape, keyword_only_inputs
    ctx.save_for_backward(indices, values, mat2)


def _conjugates(factors: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the conjugates of ``beta`` and ``alpha``, by which gradients are multiplied."""
    for factor in (factors["beta"], factors["alpha"]):
        yield factor.conjugate() if isinstance(factor, complex) else factor


def _addmm_backward(ctx: Any, grad: Tensor) -> Any:
    indices, values, mat2 = ctx.saved_tensors
    beta, alpha = _conjugates(ctx.factors)
    of_values, of_mat2 = _gradients_of_mm(indices, values, ctx.size, mat2, grad * alpha)
    return (grad * beta).sum_to_size(ctx.shape), None, of_values, None, of_mat2


def _gradients_of_sampled(indices: Tensor, mat1: Tensor, mat2: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of ``mat1`` and ``mat2``."""
    size = [mat1.shape[0], mat2.shape[1]]
    of_mat1 = own.sparse_mm(indices, grad, size, mat2.mH.contiguous())
    of_mat2 = own.sparse_mm(indices.flip(0), grad, size[::-1], mat1.conj()).mT
    return of_mat1, of_mat2


def _sampled_backward(ctx: Any, grad: Tensor) -> Any:
    indices, mat1, mat2 = ctx.saved_tensors
    return None, *_gradients_of_sampled(indices, mat1, mat2, grad)


def _keep_sampled_addmm(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[1:])
    ctx.factors = keyword_only_inputs


def _sampled_addmm_backward(ctx: Any, grad: Tensor) -> Any:
    beta, alpha = _conjugates(ctx.factors)
    indices, mat1, mat2 = ctx.saved_tensors
    return grad * beta, None, *_gradients_of_sampled(indices, mat1, mat2, grad * alpha)


differentiate("sparse_mm", _mm_backward, _keep_mm, through="sparse_sampled_mm and sparse_mm")
differentiate(
    "sparse_addmm",
    _addmm_backward,
    _keep_addmm,
    through="sparse_sampled_mm and sparse_mm",
)
differentiate(
    "sparse_sampled_mm",
    _sampled_backward,
    lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    through="sparse_mm",
)
differentiate("sparse_sampled_addmm", _sampled_addmm_backward, _keep_sampled_addmm, through="sparse_mm")


# Softmax over the entries -------------------------------------------------------------


def _softmax(indices: Tensor, values: Tensor, size: Sequence[int], dim: int, log: bool) -> Tensor:
    # Dense: PyTorch's sparse softmax loses its entries when called from inside a kernel.
    there = _there(indices, size)
    places = tuple(indices[:, there])
    dense = values.new_full((*size, *values.shape[1:]), float("-inf")).index_put_(places, values[there])
    made = torch.zeros_like(values)
    made[there] = (torch.log_softmax if log else torch.softmax)(dense, dim)[places]
    return made


def _softmax_backward(
    grad: Tensor, output: Tensor, indices: Tensor, size: Sequence[int], dim: int, log: bool
) -> Tensor:
    others = [axis for axis in range(len(size)) if axis != dim]
    present, rest = _there(indices, size), [size[axis] for axis in others]
    there = present.reshape(-1, *[1] * (grad.ndim - 1))
    weight = output.exp() if log else output
    terms = torch.where(there, grad if log else grad * output, 0)
    strides = torch.tensor([torch.Size(rest[i + 1 :]).numel() for i in range(len(rest))], dtype=torch.int64)
    group = torch.where(present, (indices[others] * strides[:, None]).sum(0), 0)
    sums = _sums_of_groups(terms, group, torch.Size(rest).numel())
    made = grad - weight * sums if log else weight * (grad - sums)
    return torch.where(there, made, 0)


def _sums_of_groups(terms: Tensor, group: Tensor, groups: int) -> Tensor:
    """Return, for each term, the sum over its group."""
    return terms.new_zeros((groups, *terms.shape[1:])).index_add_(0, group, terms)[group]


implement(
    "sparse_softmax",
    _softmax,
    lambda indices, values, *_: torch.empty_like(values),
)
implement(
    "sparse_softmax_backward",
    _softmax_backward,
    lambda grad, *_: torch.empty_like(grad),
    no_gradient="a compiled function is differentiated once",
)


def _keep_softmax(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output, inputs[0])
    ctx.options = inputs[2:]


def _softmax_gradient(ctx: Any, grad: Tensor) -> Any:
    return None, own.sparse_softmax_backward(grad, *ctx.saved_tensors, *ctx.options), None, None, None


differentiate("sparse_softmax", _softmax_gradient, _keep_softmax, through="sparse_softmax_backward")


# 2:4 sparsity -------------------------------------------------------------------------


_NO_PRUNED_GRADIENT = "2:4 sparse weights are for inference"


def _to_semi_structured(self: Tensor) -> tuple[Tensor, Tensor]:
    groups = self.unflatten(1, (-1, 4))
    # Nonzeros first; both halves keep the order of their places.
    places = (groups == 0).int().sort(dim=-1, stable=True).indices[..., :2].sort(-1).values
    return groups.gather(-1, places).flatten(1), places.to(torch.int8).flatten(1)


def _from_semi_structured(values: Tensor, places: Tensor) -> Tensor:
    columns = values.shape[1] * 2
    base = torch.arange(0, columns, 4).repeat_interleave(2)
    return values.new_zeros((values.shape[0], columns)).scatter_(1, base + places.long(), values)


implement(
    "to_sparse_semi_structured",
    _to_semi_structured,
    lambda self: (
        self.new_empty((self.shape[0], self.shape[1] // 2)),
        self.new_empty((self.shape[0], self.shape[1] // 2), dtype=torch.int8),
    ),
    no_gradient=_NO_PRUNED_GRADIENT,
)
implement(
    "semi_structured_to_dense",
    _from_semi_structured,
    lambda values, places: values.new_empty((values.shape[0], values.shape[1] * 2)),
    no_gradient=_NO_PRUNED_GRADIENT,
)
