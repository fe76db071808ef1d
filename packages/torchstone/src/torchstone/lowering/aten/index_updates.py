"""Writing whole slices, or elements of the flattened tensor, at positions given by one tensor.

``index_add`` and its relatives, ``put``, and the gradient and renormalization of embeddings.
Not here: elementwise writing (``scattering``), bags of embeddings (``embedding_bag``).
"""

from __future__ import annotations

from typing import Any

from ... import hlo
from ...dtypes import COPYABLE, FLOATING, INT64, REAL, STANDARD
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import CLAMPED, DROPPED, IndexRule, along, elements, rows
from ..common import NOTHING_TO_DO, at_least_1d, axis_of, flatten, is_empty
from ..composites import composed_whole
from ..promotion import as_value, opmath
from ..registry import Spec, lowers
from .gathering import wrapped
from .scattering import Combine, Write, add, assign, combined, multiply, reduced

aten = namespace("aten")


def _slices(axis: int, index: Value) -> Write:
    """Return a function that writes one slice of ``axis`` for each element of a 1-d ``index``."""

    def write(x: Value, source: Value, combine: Combine) -> Value:
        return hlo.put(x, index, source, axis, combine)

    return write


def _source_like(source: Value, x: Value, index: Value, axis: int) -> Value:
    """Broadcast ``source`` to the shape that its slices must have (a 0-d source is a single element)."""
    shape = [index.shape[0] if i == axis else dim for i, dim in enumerate(x.shape)]
    return hlo.broadcast_to(at_least_1d(source), shape)


@lowers(
    aten.index_add.default,
    dtypes=STANDARD,
    gaps=dict.fromkeys(COPYABLE - STANDARD, NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def index_add(self: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    """``self`` with ``alpha`` times each slice of ``source`` added at ``index`` along ``dim``."""
    if is_empty(self.shape) or is_empty(index.shape):
        return self
    axis, x, where = axis_of(dim, self.rank), at_least_1d(self), at_least_1d(index)
    slices = _source_like(source, x, where, axis)
    if alpha != 1:
        wide = hlo.convert(slices, opmath(self.dtype))
        slices = multiply(wide, hlo.full_like(wide, alpha))
    return hlo.reshape(combined(x, slices, _slices(axis, where), add), self.shape)


@lowers(aten.index_copy.default, dtypes=COPYABLE, indices=IndexRule("index", along, DROPPED))
def index_copy(self: Value, dim: int, index: Value, source: Value) -> Value:
    """``self`` with the slices of ``source`` written at ``index`` along ``dim``."""
    if is_empty(self.shape) or is_empty(index.shape):
        return self
    axis, x, where = axis_of(dim, self.rank), at_least_1d(self), at_least_1d(index)
    return hlo.reshape(hlo.put(x, where, _source_like(source, x, where, axis), axis, assign), self.shape)


@lowers(
    aten.index_fill.int_Scalar,
    aten.index_fill.int_Tensor,
    dtypes=COPYABLE,
    indices=IndexRule("index", along, DROPPED, negative=True),
)
def index_fill(self: Value, dim: int, index: Value, value: Any) -> Value:
    """``self`` with one value at the positions ``index`` along ``dim``; negative ones count from the end."""
    if is_empty(self.shape) or is_empty(index.shape):
        return self
    axis, x = axis_of(dim, self.rank), at_least_1d(self)
    where = wrapped(at_least_1d(index), x.shape[axis])
    filling = hlo.reshape(as_value(value, self.dtype), ())
    slices = hlo.broadcast_in_dim(
        filling, [where.shape[0] if i == axis else d for i, d in enumerate(x.shape)], []
    )
    return hlo.reshape(hlo.put(x, where, slices, axis, assign), self.shape)


@lowers(
    aten.index_reduce.default,
    dtypes=REAL,
    gaps=dict.fromkeys(COPYABLE - REAL, NOTHING_TO_DO),
    indices=IndexRule("index", along, DROPPED),
)
def index_reduce(
    self: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """``self`` with slices of ``source`` reduced into it at ``index`` (prod, mean, amax, amin)."""
    if is_empty(self.shape) or is_empty(index.shape):
        return self
    axis, x, where = axis_of(dim, self.rank), at_least_1d(self), at_least_1d(index)
    slices = _source_like(source, x, where, axis)
    return hlo.reshape(reduced(x, slices, _slices(axis, where), reduce, include_self), self.shape)


@lowers(aten.put.default, dtypes=COPYABLE, indices=IndexRule("index", elements, DROPPED, negative=True))
def put(self: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """``self`` with element n of ``source`` written or added at element n of ``index``, all flattened."""
    if is_empty(self.shape) or is_empty(index.shape):
        return self
    write = _slices(0, wrapped(flatten(index), self.numel))
    x, values = flatten(self), flatten(source)
    result = combined(x, values, write, add) if accumulate else write(x, values, assign)
    return hlo.reshape(result, self.shape)


def count_of_each(index: Value, size: hlo.Dim) -> Value:
    """Count how often each of ``size`` positions occurs in a 1-d index: int64 ``(size,)``."""
    return hlo.put(hlo.full((size,), 0, INT64), index, hlo.full(index.shape, 1, INT64), 0, add)


@lowers(
    aten.embedding_dense_backward.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COPYABLE - FLOATING, NOTHING_TO_DO),
)
def embedding_dense_backward(
    grad_output: Value,
    indices: Value,
    num_weights: hlo.Dim,
    padding_idx: int,
    scale_grad_by_freq: bool,
    out: Spec,
) -> Value:
    """The sum of the gradients of all uses of each row; zero for ``padding_idx``.

    ``scale_grad_by_freq`` divides each sum by the number of uses of the row.
    """
    if is_empty(grad_output.shape):
        return hlo.full(out.shape, 0, out.dtype)

    def kernel(grad: Value, positions: Value) -> Value:
        where = hlo.convert(flatten(positions), INT64)
        rows = hlo.convert(hlo.reshape(grad, (where.shape[0], out.shape[1])), opmath(out.dtype))
        if scale_grad_by_freq:
            uses = hlo.convert(hlo.take(count_of_each(where, num_weights), where, 0), rows.dtype)
            rows = rows / hlo.broadcast_in_dim(uses, rows.shape, [0])
        if not isinstance(padding_idx, int) or padding_idx >= 0:
            # Scatter drops updates at negative positions.
            where = hlo.select(hlo.eq(where, padding_idx), -1, where)
        total = hlo.put(hlo.full(out.shape, 0, rows.dtype), where, rows, 0, add)
        return hlo.convert(total, out.dtype)

    attributes = {
        "num_weights": num_weights,
        "padding_idx": padding_idx,
        "scale_grad_by_freq": scale_grad_by_freq,
    }
    return composed_whole("embedding_backward", [grad_output, indices], kernel, out, attributes)


@lowers(
    aten.embedding_renorm.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COPYABLE - FLOATING, NOTHING_TO_DO),
    indices=IndexRule("indices", rows, CLAMPED),
)
def embedding_renorm(self: Value, indices: Value, max_norm: float, norm_type: float) -> Value:
    """``self`` with each row in ``indices`` scaled down if its norm exceeds ``max_norm``."""
    if is_empty(self.shape) or is_empty(indices.shape):
        return self
    where = flatten(indices)
    rows = hlo.convert(hlo.take(self, where, 0), opmath(self.dtype))
    norm = _row_norm(rows, norm_type)
    # The constant is PyTorch's (aten/native/Embedding.cpp).
    scale = hlo.select(norm > max_norm, max_norm / (norm + 1e-7), hlo.full_like(norm, 1.0))
    scaled = hlo.convert(rows * hlo.broadcast_in_dim(scale, rows.shape, [0]), self.dtype)
    return hlo.put(self, where, scaled, 0, assign)


def _row_norm(rows: Value, order: float) -> Value:
    size = hlo.abs_(rows)
    if order == float("inf"):
        return hlo.reduce_max(size, [1])
    if order == 0:
        return hlo.reduce_sum(hlo.convert(hlo.ne(rows, 0), rows.dtype), [1])
    total = hlo.reduce_sum(hlo.power(size, float(order)), [1])
    return hlo.power(total, 1.0 / order)
