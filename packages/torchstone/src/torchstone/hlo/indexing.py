"""Gather and scatter.

As in the StableHLO specification, gather clamps starts that are out of range,
and scatter drops them.
"""

from __future__ import annotations

from collections.abc import Sequence

from ._mlir import stablehlo
from .control import Body, build_region, results
from .dimensions import Dim, is_static, plain
from .elementwise import minimum
from .value import Value, shape_operand, tensor_type


def gather(
    x: Value,
    indices: Value,
    *,
    offset_dims: Sequence[int],
    collapsed: Sequence[int],
    start_index_map: Sequence[int],
    index_vector_dim: int,
    slice_sizes: Sequence[Dim],
    operand_batching: Sequence[int] = (),
    indices_batching: Sequence[int] = (),
    sorted_indices: bool = False,
) -> Value:
    """Take slices of ``x`` at run-time positions; names follow the StableHLO specification of ``gather``.

    Along an empty axis of ``x``, slices are empty, whatever ``slice_sizes`` says.
    """
    numbers = stablehlo.GatherDimensionNumbers.get(
        offset_dims=list(offset_dims),
        collapsed_slice_dims=list(collapsed),
        operand_batching_dims=list(operand_batching),
        start_indices_batching_dims=list(indices_batching),
        start_index_map=list(start_index_map),
        index_vector_dim=index_vector_dim,
    )
    gone = {*collapsed, *operand_batching}
    window = iter([size for axis, size in enumerate(slice_sizes) if axis not in gone])
    batch = iter([dim for axis, dim in enumerate(indices.shape) if axis != index_vector_dim])
    rank = len(slice_sizes) - len(gone) + indices.rank - (index_vector_dim < indices.rank)
    shape = plain([next(window) if axis in set(offset_dims) else next(batch) for axis in range(rank)])
    sizes = plain(slice_sizes)
    target = tensor_type(shape, x.dtype)
    if is_static(sizes) and all(isinstance(x.shape[axis], int) for axis in gone):
        known = [min(n, dim) if isinstance(dim, int) else n for n, dim in zip(sizes, x.shape, strict=True)]
        operation = stablehlo.GatherOp(
            x.ir, indices.ir, numbers, known, indices_are_sorted=sorted_indices, results=[target]
        )
    else:
        operation = stablehlo.DynamicGatherOp(
            x.ir,
            indices.ir,
            minimum(shape_operand(sizes), shape_operand(x.shape)).ir,
            numbers,
            indices_are_sorted=sorted_indices,
            results=[target],
        )
    return Value(operation.result, shape, x.dtype)


def take(x: Value, indices: Value, axis: int) -> Value:
    """``x`` with ``axis`` replaced by the shape of ``indices`` (any rank, integers in range)."""
    sizes = [1 if i == axis else dim for i, dim in enumerate(x.shape)]
    before, after = axis, x.rank - axis - 1
    offset = [*range(before), *range(before + indices.rank, before + indices.rank + after)]
    return gather(
        x,
        indices,
        offset_dims=offset,
        collapsed=[axis],
        start_index_map=[axis],
        index_vector_dim=indices.rank,
        slice_sizes=sizes,
    )


def take_along(x: Value, indices: Value, axis: int) -> Value:
    """One element of ``x`` per element of ``indices`` (``torch.gather``; other axes of equal size)."""
    batching = [i for i in range(x.rank) if i != axis]
    return gather(
        x,
        indices,
        offset_dims=[],
        collapsed=[axis],
        start_index_map=[axis],
        index_vector_dim=indices.rank,
        slice_sizes=[1] * x.rank,
        operand_batching=batching,
        indices_batching=batching,
    )


def scatter(
    values: Sequence[Value],
    indices: Value,
    updates: Sequence[Value],
    body: Body,
    *,
    update_window: Sequence[int],
    inserted: Sequence[int],
    to_operand: Sequence[int],
    index_vector_dim: int,
    input_batching: Sequence[int] = (),
    indices_batching: Sequence[int] = (),
    unique: bool = False,
) -> list[Value]:
    """Combine ``updates`` into ``values``; ``body(*current, *update)``.

    Names follow the StableHLO specification of ``scatter``. Repeated indices
    are combined in an unspecified order.
    """
    numbers = stablehlo.ScatterDimensionNumbers.get(
        update_window_dims=list(update_window),
        inserted_window_dims=list(inserted),
        input_batching_dims=list(input_batching),
        scatter_indices_batching_dims=list(indices_batching),
        scattered_dims_to_operand_dims=list(to_operand),
        index_vector_dim=index_vector_dim,
    )
    operation = stablehlo.ScatterOp(
        [value.ir.type for value in values],
        [value.ir for value in values],
        indices.ir,
        [update.ir for update in updates],
        numbers,
        unique_indices=unique,
    )
    build_region(operation.regions[0], [((), value.dtype) for value in values] * 2, body)
    return results(operation, [(value.shape, value.dtype) for value in values])


def put_along(x: Value, indices: Value, updates: Value, axis: int, body: Body) -> Value:
    """Combine ``updates`` into ``x`` at ``indices`` along ``axis`` (``torch.scatter``).

    ``indices`` and ``updates`` have one shape; their other axes equal those of ``x``.
    """
    batching = [i for i in range(x.rank) if i != axis]
    return scatter(
        [x],
        indices,
        [updates],
        body,
        update_window=[],
        inserted=[axis],
        to_operand=[axis],
        index_vector_dim=indices.rank,
        input_batching=batching,
        indices_batching=batching,
    )[0]


def put(x: Value, indices: Value, updates: Value, axis: int, body: Body) -> Value:
    """Combine whole slices into ``x`` at 1-d ``indices`` along ``axis``; the counterpart of :func:`take`.

    ``updates`` has the shape of ``x`` with ``axis`` as long as ``indices``.
    """
    return scatter(
        [x],
        indices,
        [updates],
        body,
        update_window=[i for i in range(x.rank) if i != axis],
        inserted=[axis],
        to_operand=[axis],
        index_vector_dim=1,
    )[0]
