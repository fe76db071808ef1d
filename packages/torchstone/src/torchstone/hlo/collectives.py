"""Operations between the ranks of a program: each rank runs the program on values of its own.

``groups`` say which ranks take part together. Every rank is in one of them, and all have the same size;
a rank's place in its group is its place in the list. The module under construction notes how many ranks
it is for. What has no elements is sent to nobody.
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
    """On each rank ``combine`` over what the ranks of its group have; it is associative and commutative."""
    if _is_empty(x.shape):
        return x
    operation = stablehlo.AllReduceOp([x.ir.type], [x.ir], _attribute(groups))
    build_region(operation.regions[0], [((), x.dtype)] * 2, combine)
    return Value(operation.results[0], x.shape, x.dtype)


def all_gather(x: Value, axis: int, groups: Groups) -> Value:
    """On each rank what the ranks of its group have, one after the other along ``axis``."""
    shape = _resized(x.shape, axis, len(groups[0]), 1)
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.AllGatherOp([tensor_type(shape, x.dtype)], [x.ir], axis, _attribute(groups))
    return Value(operation.results[0], shape, x.dtype)


def reduce_scatter(x: Value, axis: int, groups: Groups, combine: Callable[[Value, Value], Value]) -> Value:
    """On each rank its own one of the equal parts along ``axis`` of :func:`all_reduce`."""
    shape = _resized(x.shape, axis, 1, len(groups[0]))
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.ReduceScatterOp(tensor_type(shape, x.dtype), x.ir, axis, _attribute(groups))
    build_region(operation.regions[0], [((), x.dtype)] * 2, combine)
    return Value(operation.result, shape, x.dtype)


def all_to_all(x: Value, split: int, concat: int, groups: Groups) -> Value:
    """On each rank its own one of the equal parts along ``split`` of each rank's value, along ``concat``."""
    count = len(groups[0])
    shape = _resized(_resized(x.shape, split, 1, count), concat, count, 1)
    if _is_empty(shape):
        return full(shape, 0, x.dtype)
    operation = stablehlo.AllToAllOp(
        [x.ir], split, concat, count, _attribute(groups), results=[tensor_type(shape, x.dtype)]
    )
    return Value(operation.results[0], shape, x.dtype)


def place_in_group(groups: Groups) -> Value:
    """The place of the rank that runs the program in its group, 0-d int64."""
    places = numpy.zeros(_noted(groups), dtype=numpy.int64)
    for group in groups:
        places[list(group)] = range(len(group))
    rank = convert(Value(stablehlo.replica_id(), (), UINT32), INT64)
    return take(constant(places, INT64), rank, 0)


def _attribute(groups: Groups) -> Any:
    _noted(groups)
    return ir.DenseIntElementsAttr.get(numpy.asarray(groups, dtype=numpy.int64))


def _noted(groups: Groups) -> int:
    """How many ranks there are, also for the module."""
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
