"""Bags of embeddings: the sum, mean or maximum of the rows of each bag, and the gradients.

Composites ``torchstone.embedding_bag`` and ``torchstone.embedding_bag_backward``.
A scan computes the bag of each index from the offsets, and scatters combine the rows.
Each scatter handles only some of the indices, because the rows of all indices would
need far more memory than the table and the bags.
Not here: plain embeddings (``gathering``, ``index_updates``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ... import hlo
from ...dtypes import COPYABLE, FLOATING, INT64
from ...hlo import Value
from ...torch_internals.operators import namespace
from ..checks import CLAMPED, IndexRule, rows
from ..common import NOTHING_TO_DO, counter, is_empty, restore
from ..composites import composed
from ..conditions import OFFSETS
from ..misfits import at_most, other_shape
from ..promotion import opmath
from ..registry import Spec, lowers
from .index_updates import count_of_each
from .scattering import add

aten = namespace("aten")

SUM, MEAN, MAX = 0, 1, 2
_MODES = ("sum", "mean", "max")
NOWHERE = -1
"""A position that scatter drops."""
_PART = 1 << 16
"""The number of row elements to gather at once. They fit in a processor's second-level cache."""

Step = Callable[..., Sequence[Value]]


def bag_of_each(offsets: Value, bags: hlo.Dim, count: hlo.Dim) -> Value:
    """Return the bag of each of ``count`` indices as int32 or int64, given where each bag starts."""
    kind = counter(bags, count)
    starts = hlo.slice_axis(offsets, 0, 0, bags)
    marks = hlo.put(hlo.full((count,), 0, kind), starts, hlo.full((bags,), 1, kind), 0, add)
    return hlo.associative_scan([marks], 0, lambda a, b: a + b)[0] - 1


def _by_parts(vectors: Sequence[Value], width: hlo.Dim, step: Step, state: Sequence[Value]) -> list[Value]:
    """Run ``step(start, *parts, *state)`` over successive parts of 1-d ``vectors`` and return the last state.

    The vectors have the same length. ``start`` (0-d int64) is the position where the parts begin. Parts are
    so short that their rows, of ``width`` elements each, stay in cache.
    """
    count = vectors[0].shape[0]
    if not isinstance(count, int) or not isinstance(width, int):
        return list(step(hlo.scalar(0, INT64), *vectors, *state))
    length = max(1, _PART // width)
    whole = count // length if count > length else 0

    def part(i: Value, *state: Value) -> Sequence[Value]:
        start = i * length
        return step(start, *(hlo.dynamic_slice(vector, [start], (length,)) for vector in vectors), *state)

    if whole:
        state = hlo.fori(hlo.scalar(whole, INT64), part, state)
    done = whole * length
    if done == count:
        return list(state)
    rest = [hlo.slice_axis(vector, 0, done, count) for vector in vectors]
    return list(step(hlo.scalar(done, INT64), *rest, *state))


def _real(indices: Value, padding_idx: int) -> Value:
    """True for the indices that are not padding."""
    return hlo.ne(hlo.convert(indices, INT64), padding_idx)


def _rowwise(x: Value, like: Value) -> Value:
    """Repeat one number per row along the row."""
    return hlo.broadcast_in_dim(hlo.convert(x, like.dtype), like.shape, [0])


def _combined(weight: Value, indices: Value, where: Value, scale: Value | None, bags: hlo.Dim) -> Value:
    """Return the sum of the rows in each bag, with each row multiplied by its ``scale``."""

    def step(_: Value, indices: Value, where: Value, *rest: Value) -> Sequence[Value]:
        rows = hlo.take(weight, indices, 0)
        *scales, total = rest
        for scale in scales:
            rows = rows * _rowwise(scale, rows)
        return [hlo.put(total, where, rows, 0, add)]

    vectors = [indices, where] if scale is None else [indices, where, scale]
    width = weight.shape[1]
    return _by_parts(vectors, width, step, [hlo.full((bags, width), 0, weight.dtype)])[0]


def _largest(weight: Value, indices: Value, where: Value, bags: hlo.Dim) -> tuple[Value, Value]:
    """Return the maximum of each column in each bag, and the first index that has it; zeros for an empty bag.

    As in PyTorch's kernel, a NaN is the maximum only if it is the first element of its bag,
    because nothing compares larger than it.
    """
    width = weight.shape[1]
    kind = counter(indices.shape[0])
    shape, never = (bags, width), hlo.highest(kind)
    lowest = hlo.lowest(weight.dtype)

    def numbers(indices: Value) -> Value:
        rows = hlo.take(weight, indices, 0)
        return hlo.select(hlo.is_nan(rows), lowest, rows)

    def largest(_: Value, indices: Value, where: Value, best: Value) -> Sequence[Value]:
        return [hlo.put(best, where, numbers(indices), 0, hlo.maximum)]

    def first_of(start: Value, indices: Value, where: Value, first: Value) -> Sequence[Value]:
        rows = numbers(indices)
        here = hlo.eq(rows, hlo.take(best, hlo.maximum(where, 0), 0))
        place = hlo.iota(rows.shape, 0, kind) + hlo.broadcast_to(hlo.convert(start, kind), rows.shape)
        return [hlo.put(first, where, hlo.select(here, place, never), 0, hlo.minimum)]

    nothing = hlo.full(shape, lowest, weight.dtype)
    (best,) = _by_parts([indices, where], width, largest, [nothing])
    (first,) = _by_parts([indices, where], width, first_of, [hlo.full(shape, never, kind)])
    found = hlo.ne(first, never)
    begins = hlo.put(hlo.full((bags,), never, kind), where, hlo.iota(where.shape, 0, kind), 0, hlo.minimum)
    begins = restore(hlo.select(hlo.eq(begins, never), 0, begins), shape, [1])
    opening = hlo.take_along(weight, hlo.take(hlo.convert(indices, INT64), begins, 0), 0)
    stays = found & hlo.is_nan(opening)
    best = hlo.select(stays, opening, best)
    chosen = hlo.take(hlo.convert(indices, INT64), hlo.select(found, hlo.select(stays, begins, first), 0), 0)
    return hlo.select(found, best, 0.0), hlo.select(found, chosen, 0)


def _refuses_few_offsets(arguments: Mapping[str, Any]) -> str | None:
    """Refuse calls without a bag for each index or, if bags are left out, an offset for each gradient row."""
    if arguments["offset2bag"].dim() != 1:
        return f"offset2bag has {arguments['offset2bag'].dim()} dimensions; expected 1"
    if arguments["offset2bag"].shape[0]:
        return other_shape("offset2bag", arguments["offset2bag"].shape, arguments["indices"].shape)
    bags, offsets = arguments["grad"].shape[0], arguments["offsets"].shape[0]
    if at_most(bags, offsets):
        return None
    return f"offsets has shape [{offsets}], and the gradient has {bags} bags"


def _refuses_sparse(arguments: Mapping[str, Any]) -> str | None:
    """Refuse sparse gradients, which are not strided tensors, and calls with too few bags or offsets."""
    if arguments["sparse"]:
        return "a sparse gradient is not a strided tensor; use sparse=False"
    return _refuses_few_offsets(arguments)


def _refuses_matrices(arguments: Mapping[str, Any]) -> str | None:
    """Refuse indices and offsets that are not 1-d: kernels read a number of them that may be wrong."""
    ranks = {name: arguments[name].dim() for name in ("indices", "offsets")}
    found = ", ".join(f"{name} has {rank} dimensions" for name, rank in ranks.items() if rank != 1)
    return f"{found}; expected 1" if found else None


# Only autograd uses sparse gradients and their scale.
@lowers(
    aten._embedding_bag.default,
    aten._embedding_bag_forward_only.default,
    dtypes=FLOATING,
    ignores=("scale_grad_by_freq", "sparse"),
    indices=IndexRule("indices", rows, CLAMPED),
    values=OFFSETS,
    refuses=_refuses_matrices,
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
    """Rows of ``weight``, summed, averaged or maximized for each bag.

    Returns the result, the bag of each index, the size of each bag without its
    padding and, for maxima, the row that each maximum came from. As in PyTorch's kernel,
    sums return zeros for the last two, and means return the sizes twice. The bags of
    indices are left out if PyTorch's backward does not need them.
    """
    count = indices.shape[0]
    bags = offsets.shape[0] - 1 if include_last_offset else offsets.shape[0]

    def kernel(weight: Value, indices: Value, offsets: Value, scale: Value | None) -> list[Value]:
        if is_empty((count, *weight.shape)) or is_empty((bags,)):
            return [hlo.full(spec.shape, 0, spec.dtype) for spec in out]
        bag = bag_of_each(offsets, bags, count)
        real = _real(indices, padding_idx)
        where = hlo.select(real, bag, NOWHERE)
        kind = counter(bags, count)
        sizes = hlo.put(hlo.full((bags,), 0, kind), where, hlo.full((count,), 1, kind), 0, add)
        chosen = hlo.full(out[3].shape, 0, INT64)
        if mode == MAX:
            result, chosen = _largest(weight, indices, where, bags)
        else:
            result = _combined(weight, indices, where, scale, bags)
            if mode == MEAN:
                result = result / _rowwise(hlo.maximum(sizes, 1), result)
        if mode == SUM:
            sizes = hlo.full((bags,), 0, INT64)
        if mode == MEAN:
            chosen = hlo.pad_axis(hlo.convert(sizes, INT64), 0, 0, 0, out[3].shape[0] - bags)
        left_out = hlo.same_dim(out[1].shape[0], 0)
        surplus = out[2].shape[0] - bags
        return [
            result,
            hlo.full((0,), 0, INT64) if left_out else hlo.convert(bag, INT64),
            hlo.pad_axis(hlo.convert(sizes, INT64), 0, 0, 0, surplus),
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


def _refuses_unknown_sizes(arguments: Mapping[str, Any]) -> str | None:
    """Refuse wrong shapes: kernels read a bag per index and, for means, a size per bag without checking."""
    said = other_shape("offset2bag", arguments["offset2bag"].shape, arguments["indices"].shape)
    if said is not None:
        return said
    bags, sizes = arguments["grad"].shape[0], list(arguments["bag_size"].shape)
    if arguments["mode"] != MEAN or (len(sizes) == 1 and at_most(bags, sizes[0])):
        return None
    return f"bag_size has shape {sizes}; expected a size of each of {bags} bags"


@lowers(
    aten._embedding_bag_dense_backward.default,
    dtypes=FLOATING,
    gaps=dict.fromkeys(COPYABLE - FLOATING, NOTHING_TO_DO),
    refuses=_refuses_unknown_sizes,
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
    """The gradient of the rows, given the bag of each index."""

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
        index = hlo.convert(indices, INT64)
        counts = count_of_each(index, num_weights) if scale_grad_by_freq else None

        def step(_: Value, bag: Value, where: Value, *rest: Value) -> Sequence[Value]:
            rows = hlo.take(grad, bag, 0)
            *scales, total = rest
            for own in scales:
                rows = rows * _rowwise(own, rows)
            if counts is not None:
                rows = rows / _rowwise(hlo.take(counts, where, 0), rows)
            if mode == MEAN:
                rows = rows / _rowwise(hlo.maximum(hlo.take(sizes, bag, 0), 1), rows)
            return [hlo.put(total, where, rows, 0, add)]

        where = hlo.select(_real(index, padding_idx), index, NOWHERE)
        vectors = [bag, where] if scale is None else [bag, where, scale]
        return _by_parts(vectors, grad.shape[1], step, [zeros])[0]

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
    ignores=("sparse",),
    refuses=_refuses_sparse,
)
def embedding_bag_backward(
    grad: Value,
    indices: Value,
    offset2bag: Value,
    bag_size: Value,
    maximum_indices: Value,
    offsets: Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: Value | None,
    padding_idx: int = -1,
    *,
    out: Spec,
) -> Value | None:
    """The gradient of the rows. Bags of indices that the forward pass left out follow from the offsets."""
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
        return hlo.convert(bag_of_each(offsets, grad.shape[0], indices.shape[0]), INT64)
    return offset2bag


# Only sums have per-sample weights.
@lowers(
    aten._embedding_bag_per_sample_weights_backward.default,
    dtypes=FLOATING,
    ignores=("mode",),
    refuses=_refuses_few_offsets,
)
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
    """For each index, the dot product of its row and the gradient of its bag; zero for padding."""
    if is_empty(out.shape) or is_empty(grad.shape):
        return hlo.full(out.shape, 0, out.dtype)
    wide = opmath(out.dtype)
    rows = hlo.convert(hlo.take(weight, indices, 0), wide)
    arrived = hlo.convert(hlo.take(grad, _bags(grad, indices, offsets, offset2bag), 0), wide)
    total = hlo.reduce_sum(rows * arrived, [1])
    return hlo.convert(hlo.select(_real(indices, padding_idx), total, 0.0), out.dtype)
