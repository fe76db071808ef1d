"""Collective operations between the ranks of a program; each rank runs the program on its own values.

``groups`` lists the ranks that take part together. Every rank is in one group, and all groups have the same
size. The order of a group's list gives the place of each rank in its group. The module under construction
records how many ranks it is for. Values without elements are not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from ..dtypes import INT64, UINT32
from ..errors import LoweringBug
from ._mlir import ir, stablehlo
from .control import build_region
from .dimensions import Dim
from .elementwise import convert
from .indexing import take
from .value import Value, constant, full, scope, tensor_type

Groups = Sequence[Sequence[int]]


def all_reduce(x: Value, groups: Groups, combine: Callable[[Value, Value], Value]) -> Value:
    """Combine the values of the ranks of each group by the associative and commutative ``combine``.

    All ranks of a group get the same result.
    """
    if _is_empty(x.shape):
        return x
    operation = stablehlo.AllReduceOp([x.ir.type], [x.ir], _attribute(groups))
    build_region(operation.regions[0], [((), x.dtype)] * 2, combine)
    return Value(operation.results[0], x.shape, x.dtype)


def all_gather(x: Value, axis: int, groups: Groups) -> Value:
    """Give each rank the values of all ranks of its group, concatenated along ``axis``."""
    shape = _resized(x.shape, axis, len(groups[0]), 1)
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.AllGatherOp([tensor_type(shape, x.dtype)], [x.ir], axis, _attribute(groups))
    return Value(operation.results[0], shape, x.dtype)


def reduce_scatter(x: Value, axis: int, groups: Groups, combine: Callable[[Value, Value], Value]) -> Value:
    """Split the result of :func:`all_reduce` into equal parts along ``axis``; each rank gets one of them."""
    shape = _resized(x.shape, axis, 1, len(groups[0]))
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.ReduceScatterOp(tensor_type(shape, x.dtype), x.ir, axis, _attribute(groups))
    build_region(operation.regions[0], [((), x.dtype)] * 2, combine)
    return Value(operation.result, shape, x.dtype)


def all_to_all(x: Value, split: int, concat: int, groups: Groups) -> Value:
    """Split each rank's value into equal parts along ``split``, one part for each rank of the group.

    Each rank gets its part from every rank; the parts are concatenated along ``concat``.
    """
    count = len(groups[0])
    shape = _resized(_resized(x.shape, split, 1, count), concat, count, 1)
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.AllToAllOp(
        [x.ir], split, concat, count, _attribute(groups), results=[tensor_type(shape, x.dtype)]
    )
    return Value(operation.results[0], shape, x.dtype)


def place_in_group(groups: Groups) -> Value:
    """Return the place in its group of the rank that runs the program, as 0-d int64."""
    places = numpy.zeros(_noted(groups), dtype=numpy.int64)
    for group in groups:
        places[list(group)] = range(len(group))
    rank = convert(Value(stablehlo.replica_id(), (), UINT32), INT64)
    return take(constant(places, INT64), rank, 0)


def _attribute(groups: Groups) -> Any:
    _noted(groups)
    return ir.DenseIntElementsAttr.get(numpy.asarray(groups, dtype=numpy.int64))


def _noted(groups: Groups) -> int:
    """Record the number of ranks in the module, and return it."""
    count = sum(map(len, groups))
    module = scope.module
    if module.ranks not in (None, count):
        raise LoweringBug(f"a module for {module.ranks} ranks has a collective of {count}")
    module.ranks = count
    return count


def _resized(shape: Sequence[Dim], axis: int, times: int, parts: int) -> list[Dim]:
    return [size * times // parts if place == axis else size for place, size in enumerate(shape)]


def _is_empty(shape: Sequence[Dim]) -> bool:
    return any(isinstance(size, int) and size == 0 for size in shape)
