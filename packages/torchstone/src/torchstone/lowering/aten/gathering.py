"""Reading at positions given by tensors: index, gather, index_select, take, embedding.

Not here: writing at such positions (``scattering``), masks (``masking``), bags of
embeddings (``embedding_bag``). Eager checks that positions are in range. Here
positions out of range are clamped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ... import hlo
from ...dtypes import COPYABLE, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import CLAMPED, IndexRule, along, elements, rows
from ..common import at_least_1d, axis_of, flatten, is_empty
from ..composites import Expand, composed_whole, expanded
from ..conditions import CLASSES
from ..registry import Spec, lowers

aten = namespace("aten")


def wrapped(index: Value, size: hlo.Dim) -> Value:
    """Convert an index to int64; negative values count from the end of an axis of ``size``."""
    index = hlo.convert(index, INT64)
    extent = hlo.broadcast_in_dim(hlo.dim_scalar(size), index.shape, [])
    return hlo.select(index < 0, index + extent, index)


@dataclass(frozen=True)
class Positions:
    """Advanced indices in the terms of StableHLO's gather and scatter.

    ``starts`` is int64 ``(*batch, len(axes))``. ``offset_dims`` says where the axes
    without an index lie in the result ``x[indices]``, which has ``shape``.
    """

    axes: list[int]
    starts: Value
    offset_dims: list[int]
    shape: list[hlo.Dim]


def positions(shape: Sequence[hlo.Dim], indices: Sequence[Value | None]) -> Positions:
    """Return the positions that ``x[indices]`` selects from ``x`` of ``shape``; an index must be a tensor.

    Index tensors broadcast against each other. If the indexed axes are adjacent, the
    common axes replace them; otherwise the common axes come first, as in NumPy.
    """
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    given = [wrapped(index, shape[axis]) for axis, index in enumerate(indices) if index is not None]
    batch = list(hlo.broadcast_shapes(*(index.shape for index in given)))
    columns = [hlo.expand_dims(hlo.broadcast_to(index, batch), [-1]) for index in given]
    neighbours = axes == list(range(axes[0], axes[-1] + 1))
    lead = axes[0] if neighbours else 0
    kept = [dim for axis, dim in enumerate(shape) if axis not in axes]
    offset_dims = [axis if axis < lead else axis + len(batch) for axis in range(len(kept))]
    return Positions(
        axes, hlo.concatenate(columns, len(batch)), offset_dims, kept[:lead] + batch + kept[lead:]
    )


# Boolean masks were already turned into positions, whose number depends on data.
@lowers(
    aten.index.Tensor,
    aten._unsafe_index.Tensor,
    dtypes=COPYABLE,
    indices=IndexRule("indices", along, CLAMPED, negative=True),
)
def index(self: Value, indices: list[Value | None], out: Spec) -> Value:
    """``self[indices]`` with integer tensors and, for whole axes, ``None``."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    if all(index is None for index in indices):
        return self
    where = positions(self.shape, indices)
    return hlo.gather(
        self,
        where.starts,
        offset_dims=where.offset_dims,
        collapsed=where.axes,
        start_index_map=where.axes,
        index_vector_dim=where.starts.rank - 1,
        slice_sizes=[1 if axis in where.axes else dim for axis, dim in enumerate(self.shape)],
    )


@lowers(aten.index_select.default, dtypes=COPYABLE, indices=IndexRule("index", along, CLAMPED))
def index_select(self: Value, dim: int, index: Value, out: Spec) -> Value:
    """The slices of an axis at the positions in a 0-d or 1-d ``index``."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    taken = hlo.take(at_least_1d(self), at_least_1d(index), axis_of(dim, self.rank))
    return hlo.reshape(taken, out.shape)


def like_index(x: Value, index: Value, axis: int) -> Value:
    """Cut ``x`` to the sizes of ``index`` along every axis except ``axis``."""
    limits = [x.shape[i] if i == axis else index.shape[i] for i in range(x.rank)]
    return hlo.slice_(x, [0] * x.rank, limits)


# A sparse gradient concerns autograd, not the value.
@lowers(
    aten.gather.default, dtypes=COPYABLE, ignores=("sparse_grad",), indices=IndexRule("index", along, CLAMPED)
)
def gather(self: Value, dim: int, index: Value, out: Spec) -> Value:
    """One element along ``dim`` for each element of ``index``."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    axis = axis_of(dim, self.rank)
    x, index = at_least_1d(self), at_least_1d(index)
    return hlo.reshape(hlo.take_along(like_index(x, index, axis), index, axis), out.shape)


@lowers(aten.take.default, dtypes=COPYABLE, indices=IndexRule("index", elements, CLAMPED, negative=True))
def take(self: Value, index: Value, out: Spec) -> Value:
    """Elements of the flattened tensor."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    return hlo.take(flatten(self), wrapped(index, self.numel), 0)


# These three affect only the gradient.
@lowers(
    aten.embedding.default,
    dtypes=COPYABLE,
    ignores=("padding_idx", "scale_grad_by_freq", "sparse"),
    indices=IndexRule("indices", rows, CLAMPED),
)
def embedding(weight: Value, indices: Value, out: Spec) -> Value:
    """The rows of ``weight`` at ``indices``."""
    if is_empty(out.shape):
        return hlo.full(out.shape, 0, out.dtype)
    return composed_whole("embedding", [weight, indices], lambda w, i: hlo.take(w, i, 0), out, {})


@lowers(aten.one_hot.default, dtypes=frozenset({INT64}), values=CLASSES)
def one_hot(self: Value, num_classes: int, expand: Expand, out: Spec) -> list[Value]:
    """One at the class of each element, zero elsewhere; all zeros for a class out of range."""
    return expanded("one_hot", [self], expand, out, {"num_classes": num_classes})
