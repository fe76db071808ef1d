"""Bags of embeddings: sums, means and maxima of rows, bag by bag, and the gradients.

Composites ``torchstone.embedding_bag`` and ``torchstone.embedding_bag_backward``.
Their decompositions have no loop: a scan turns offsets into the bag of every
index, and one scatter combines the rows.
Not here: plain embeddings (``gathering``, ``index_updates``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ... import hlo
from ...dtypes import COPYABLE, FLOATING, INT64
from ...hlo import Value
from ..common import NOTHING_TO_DO, is_empty
from ..composites import composed
from ..promotion import opmath
from ..registry import Spec, lowers
from .index_updates import count_of_each
from .scattering import add

aten = torch.ops.aten

SUM, MEAN, MAX = 0, 1, 2
_MODES = ("sum", "mean", "max")
NOWHERE = -1
"""A position that scatter drops."""


def bag_of_each(offsets: Value, bags: hlo.Dim, count: hlo.Dim) -> Value:
    """The bag of each of ``count`` indices, from where the bags start: int64 ``(count,)``."""
    starts = hlo.convert(hlo.slice_axis(offsets, 0, 0, bags), INT64)
    marks = hlo.put(hlo.full((count,), 0, INT64), starts, hlo.full((bags,), 1, INT64), 0, add)
    return hlo.associative_scan([marks], 0, lambda a, b: a + b)[0] - 1


def _real(indices: Value, padding_idx: int) -> Value:
    """True for the indices that are not padding."""
    return hlo.ne(hlo.convert(indices, INT64), padding_idx)


def _rowwise(x: Value, like: Value) -> Value:
    """One number per row, repeated along the row."""
    return hlo.broadcast_in_dim(hlo.convert(x, like.dtype), like.shape, [0])


def _largest(rows: Value, indices: Value, bag: Value, where: Value, bags: hlo.Dim) -> tuple[Value, Value]:
    """The maximum of each column in each bag, and the first index that has it; zeros for an empty bag."""
    width = rows.shape[1]
    start = hlo.full((bags, width), hlo.lowest(rows.dtype), rows.dtype)
    best = hlo.put(start, where, rows, 0, hlo.maximum)
    place = hlo.iota(rows.shape, 0, INT64)
    here = hlo.eq(rows, hlo.take(best, bag, 0)) & hlo.broadcast_in_dim(
        hlo.ne(where, NOWHERE), rows.shape, [0]
    )
    never = hlo.highest(INT64)
    first = hlo.put(hlo.full(best.shape, never, INT64), where, hlo.select(here, place, never), 0, hlo.minimum)
    found = hlo.ne(first, never)
    chosen = hlo.take(hlo.convert(indices, INT64), hlo.select(found, first, 0), 0)
    return hlo.select(found, best, 0.0), hlo.select(found, chosen, 0)


def _refuses_sparse(arguments: Mapping[str, Any]) -> str | None:
    return "a sparse gradient is no strided tensor; use sparse=False" if arguments["sparse"] else None


# Sparse gradients and their scale are matters of autograd.
@lowers(
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
    dtypes=FLOATING,
    ignores=("scale_grad_by_freq", "sparse"),
)
def embedding_bag(
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int = SUM,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
    *,
    out: tuple[Spec, Spec, Spec, Spec],
) -> Sequence[Value | None]:
    """Rows of ``weight`` summed, averaged or maximised bag by bag.

    Returns the result, the bag of each index, the size of each bag without its
    padding and, for maxima, the row that each came from. PyTorch leaves the
    bags of indices out where its own backward can do without.
    """
    count = indices.shape[0]
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]

    def kernel(weight: Value, indices: Value, offsets: Value, scale: Value | None) -> list[Value]:
        if is_empty((count, *weight.shape)) or is_empty((bags,)):
            return [hlo.full(spec.shape, 0, spec.dtype) for spec in out]
        bag = bag_of_each(offsets, bags, count)
        real = _real(indices, padding_idx)
        where = hlo.select(real, bag, NOWHERE)
        sizes = hlo.put(hlo.full((bags,), 0, INT64), where, hlo.full((count,), 1, INT64), 0, add)
        rows = hlo.take(weight, indices, 0)
        chosen = hlo.full(out[3].shape, 0, INT64)
        if mode == MAX:
            result, chosen = _largest(rows, indices, bag, where, bags)
        else:
            rows = rows if scale is None else rows * _rowwise(scale, rows)
            result = hlo.put(hlo.full((bags, rows.shape[1]), 0, rows.dtype), where, rows, 0, add)
            if mode == MEAN:
                result = result / _rowwise(hlo.maximum(sizes, 1), result)
        left_out = hlo.same_dim(out[1].shape[0], 0)
        surplus = out[2].shape[0] - bags
        return [
            result,
            hlo.full((0,), 0, INT64) if left_out else bag,
            hlo.pad_axis(sizes, 0, 0, 0, surplus),
            chosen,
        ]

    attributes: dict[str, hlo.Attribute] = {
        "mode": _MODES[mode],
        "include_last_offset": include_last_offset,
        "padding_idx": padding_idx,
        "with_bags": not hlo.same_dim(out[1].shape[0], 0),
        "sized_offsets": hlo.same_dim(out[2].shape[0], offsets.shape[0]),
    }
    return composed("embedding_bag", [weight, indices, offsets, per_sample_weights], kernel, out, attributes)


@lowers(
    aten._embedding_bag_dense_backward.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COPYABLE - FLOATING, NOTHING_TO_DO),
)
def embedding_bag_dense_backward(
    grad: Value,
    indices: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
    *,
    out: Spec,
) -> Value | None:
    """The gradient of the rows, from the bag of each index."""

    def kernel(
        grad: Value, indices: Value, bag: Value, sizes: Value, maximum: Value, scale: Value | None
    ) -> Value:
        zeros = hlo.full(out.shape, 0, grad.dtype)
        if is_empty(grad.shape) or is_empty(indices.shape):
            return zeros
        if mode == MAX:
            filled = hlo.broadcast_in_dim(sizes > 0, grad.shape, [0])
            where = hlo.select(filled, hlo.convert(maximum, INT64), NOWHERE)
            return hlo.put_along(zeros, where, grad, 0, add)
        rows, where = hlo.take(grad, bag, 0), hlo.convert(indices, INT64)
        if scale is not None:
            rows = rows * _rowwise(scale, rows)
        if scale_grad_by_freq:
            rows = rows / _rowwise(hlo.take(count_of_each(where, num_weights), where, 0), rows)
        if mode == MEAN:
            rows = rows / _rowwise(hlo.take(sizes, bag, 0), rows)
        return hlo.put(zeros, hlo.select(_real(where, padding_idx), where, NOWHERE), rows, 0, add)

    attributes: dict[str, hlo.Attribute] = {
        "mode": _MODES[mode],
        "num_weights": num_weights,
        "scale_grad_by_freq": scale_grad_by_freq,
        "padding_idx": padding_idx,
    }
    inputs = [grad, indices, offset2bag, bag_size, maximum_indices, per_sample_weights]
    return composed("embedding_bag_backward", inputs, kernel, out, attributes)[0]


@lowers(
    aten._embedding_bag_backward.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COPYABLE - FLOATING, NOTHING_TO_DO),
    refuses=_refuses_sparse,
    ignores=("sparse",),
)
def embedding_bag_backward(
    grad: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
    *,
    out: Spec,
) -> Value | None:
    """The gradient of the rows; where the forward left the bags of indices out, from the offsets."""
    bag = _bags(grad, indices, offsets, offset2bag)
    return embedding_bag_dense_backward(
        grad,
        indices,
        bag,
        bag_size,
        maximum_indices,
        num_weights,
        scale_grad_by_freq,
        mode,
        per_sample_weights,
        padding_idx,
        out=out,
    )


def _bags(grad: Value, indices: Value, offsets: Value, offset2bag: Value) -> Value:
    if hlo.same_dim(offset2bag.shape[0], 0) and not is_empty(indices.shape) and not is_empty(grad.shape):
        return bag_of_each(offsets, grad.shape[0], indices.shape[0])
    return offset2bag


# Only sums have weights for each sample.
@lowers(aten._embedding_bag_per_sample_weights_backward.default, dtypes=FLOATING, ignores=("mode",))
def embedding_bag_per_sample_weights_backward(
    grad: Value,
    weight: Value,
    indices: Value,
    offsets: Value,
    offset2bag: Value,
    padding_idx: int = -1,
    *,
    out: Spec,
) -> Value:
    """For each index the product of its row with the gradient of its bag; zero for padding."""
    if is_empty(out.shape) or is_empty(grad.shape):
        return hlo.full(out.shape, 0, out.dtype)
    wide = opmath(out.dtype)
    rows = hlo.convert(hlo.take(weight, indices, 0), wide)
    arrived = hlo.convert(hlo.take(grad, _bags(grad, indices, offsets, offset2bag), 0), wide)
    total = hlo.reduce_sum(rows * arrived, [1])
    return hlo.convert(hlo.select(_real(indices, padding_idx), total, 0.0), out.dtype)
