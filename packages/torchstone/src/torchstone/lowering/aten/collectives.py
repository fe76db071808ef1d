"""PyTorch's functional collectives, which each rank computes together with the other ranks of its group.

Each rank runs the program on its own tensors. :mod:`..groups` determines which ranks form groups. Not here:
messages from one rank to another (``isend``, ``irecv``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ... import dtypes as types
from ... import hlo
from ...dtypes import ALL_INTEGRAL, BOOL, COMPLEX, COPYABLE, FLOATING, DType
from ...errors import ShardingError
from ...hlo import Groups, Value
from ...torch_internals.operators import namespace
from ..groups import groups_of, run_alone
from ..registry import Spec, lowers

c10d = namespace("_c10d_functional")
autograd = namespace("_c10d_functional_autograd")
dtensor = namespace("_dtensor")

_REDUCED = ALL_INTEGRAL | FLOATING | COMPLEX | {BOOL}
_NO_SUM = dict.fromkeys(types.FLOAT8, "it has no sums of its own: convert to a wider dtype")


@dataclass(frozen=True)
class _Reduction:
    """A reduction over ranks: the function that combines two values, and the supported dtypes.

    ``apart`` is True if XLA has no such collective: each rank then gets the values of all ranks and reduces
    them itself, starting from the identity element ``unit``.
    """

    combine: Callable[[Value, Value], Value]
    dtypes: frozenset[DType]
    mean: bool = False
    apart: bool = False
    unit: int = 0


def _add(a: Value, b: Value) -> Value:
    return a | b if a.dtype is BOOL else a + b


def _multiply(a: Value, b: Value) -> Value:
    return a & b if a.dtype is BOOL else a * b


_WHOLE = ALL_INTEGRAL | {BOOL}
_REDUCTIONS = {
    "sum": _Reduction(_add, _REDUCED),
    "avg": _Reduction(_add, FLOATING | COMPLEX, mean=True),
    "product": _Reduction(_multiply, _REDUCED),
    "min": _Reduction(hlo.minimum, _REDUCED - COMPLEX),
    "max": _Reduction(hlo.maximum, _REDUCED - COMPLEX),
    "band": _Reduction(Value.__and__, _WHOLE, apart=True, unit=-1),
    "bor": _Reduction(Value.__or__, _WHOLE, apart=True),
    "bxor": _Reduction(Value.__xor__, _WHOLE, apart=True),
}


# Refusals --------------------------------------------------------------------------------


def _refused_group(given: Mapping[str, Any]) -> str | None:
    """Refuse groups that do not lie along one axis of a mesh, a wrong ``group_size``, or a wrong ``src``."""
    try:
        count = len(groups_of(given["group_name"])[0])
    except ShardingError as error:
        return error.message
    if given.get("group_size", count) != count:
        return f"group_size is {given['group_size']}, and the group has {count} ranks"
    if not 0 <= given.get("src", 0) < count:
        return f"src is {given['src']}, and the group has {count} ranks"
    return None


def _refused_reduction(given: Mapping[str, Any]) -> str | None:
    """Refuse reductions that the dtype does not support, and groups not along one axis of a mesh."""
    name = given["reduce_op"].lower()
    if name not in _REDUCTIONS:
        return f"the reduction {name!r} is not one of {', '.join(_REDUCTIONS)}"
    for tensor in _tensors(given):
        dtype = types.from_torch(tensor.dtype)
        if dtype not in _REDUCTIONS[name].dtypes:
            return f"{dtype} has no reduction {name!r}"
    return _refused_group(given)


def _refused_scatter(given: Mapping[str, Any]) -> str | None:
    """Refuse uneven parts, reductions that the dtype does not support, and groups not along a mesh axis."""
    for tensor in _tensors(given):
        if tensor.ndim == 0 or tensor.shape[0] % given["group_size"] != 0:
            return f"{list(tensor.shape)} does not split into {given['group_size']} equal parts"
    return _refused_reduction(given)


def _refused_splits(given: Mapping[str, Any]) -> str | None:
    """Refuse parts of different or wrong sizes, and groups that do not lie along one axis of a mesh."""
    first = given["input_split_sizes"][0]
    for name in ("input_split_sizes", "output_split_sizes"):
        sizes = list(given[name])
        if any(size != first for size in sizes):
            return f"{name} is {sizes}: a program exchanges parts of one size only; pad them to the largest"
    rows, sizes = given["input"].shape[0], list(given["input_split_sizes"])
    if sum(sizes) != rows:
        return f"input_split_sizes is {sizes}, and the input has {rows} rows"
    return _refused_group({**given, "group_size": len(given["input_split_sizes"])})


def _tensors(given: Mapping[str, Any]) -> Sequence[Any]:
    return given["inputs"] if "inputs" in given else [given["input"]]


# Each rank's value -----------------------------------------------------------------------


def _reduced(x: Value, name: str, groups: Groups) -> Value:
    count, reduction = len(groups[0]), _REDUCTIONS[name.lower()]
    if count == 1:
        return x
    if reduction.apart:
        return _folded(hlo.all_gather(hlo.expand_dims(x, [0]), 0, groups), reduction)
    made = hlo.all_reduce(x, groups, reduction.combine)
    return made / count if reduction.mean else made


def _scattered(x: Value, name: str, groups: Groups) -> Value:
    count, reduction = len(groups[0]), _REDUCTIONS[name.lower()]
    if count == 1:
        return x
    if reduction.apart:
        parts = hlo.all_to_all(x, 0, 0, groups)
        return _folded(hlo.reshape(parts, (count, x.shape[0] // count, *x.shape[1:])), reduction)
    made = hlo.reduce_scatter(x, 0, groups, reduction.combine)
    return made / count if reduction.mean else made


def _folded(parts: Value, reduction: _Reduction) -> Value:
    """Reduce the values of all ranks, which lie along the first axis, to one value."""
    return hlo.reduce([parts], [reduction.unit], [0], reduction.combine)[0]


def _gathered(x: Value, groups: Groups) -> Value:
    x = x if x.rank else hlo.reshape(x, (1,))
    return x if len(groups[0]) == 1 else hlo.all_gather(x, 0, groups)


def _exchanged(x: Value, split: int, concat: int, groups: Groups) -> Value:
    return x if len(groups[0]) == 1 else hlo.all_to_all(x, split, concat, groups)


def _broadcast(x: Value, source: int, groups: Groups) -> Value:
    if len(groups[0]) == 1:
        return x
    if x.dtype.is_complex:
        return hlo.complex_(*(_broadcast(part, source, groups) for part in (hlo.real(x), hlo.imag(x))))
    bits = hlo.convert(x, types.UINT8) if x.dtype is BOOL else hlo.bitcast(x, _BITS[x.dtype.bits])
    mine = hlo.broadcast_to(hlo.eq(hlo.place_in_group(groups), source), bits.shape)
    sent = hlo.all_reduce(hlo.select(mine, bits, hlo.zeros_like(bits)), groups, _add)
    return hlo.convert(sent, BOOL) if x.dtype is BOOL else hlo.bitcast(sent, x.dtype)


_BITS = {8: types.UINT8, 16: types.UINT16, 32: types.UINT32, 64: types.UINT64}


# Operators -------------------------------------------------------------------------------


@lowers(c10d.all_reduce.default, dtypes=_REDUCED, gaps=_NO_SUM, refuses=_refused_reduction)
def all_reduce(input: Value, reduce_op: str, group_name: Any) -> Value:
    """The sum (mean, product, minimum, maximum, and, or, exclusive or) of the group's tensors."""
    return _reduced(input, reduce_op, groups_of(group_name))


@lowers(
    c10d.all_reduce_coalesced.default,
    dtypes=_REDUCED,
    gaps=_NO_SUM,
    refuses=_refused_reduction,
)
def all_reduce_coalesced(inputs: Sequence[Value], reduce_op: str, group_name: Any) -> list[Value]:
    """``all_reduce`` of each tensor of a list."""
    groups = groups_of(group_name)
    return [_reduced(x, reduce_op, groups) for x in inputs]


# group_size follows from the group's name
@lowers(
    c10d.all_gather_into_tensor.default,
    autograd.all_gather_into_tensor.default,
    dtypes=COPYABLE,
    ignores=("group_size",),
    refuses=_refused_group,
)
def all_gather_into_tensor(input: Value, group_name: Any, out: Spec) -> Value:
    """The tensors of all ranks of the group, concatenated along the first dimension."""
    return hlo.reshape(_gathered(input, groups_of(group_name)), out.shape)


@lowers(
    c10d.all_gather_into_tensor_coalesced.default,
    dtypes=COPYABLE,
    ignores=("group_size",),
    refuses=_refused_group,
)
def all_gather_into_tensor_coalesced(inputs: Sequence[Value], group_name: Any) -> list[Value]:
    """``all_gather_into_tensor`` of each tensor of a list."""
    groups = groups_of(group_name)
    return [_gathered(x, groups) for x in inputs]


@lowers(
    c10d.reduce_scatter_tensor.default,
    autograd.reduce_scatter_tensor.default,
    dtypes=_REDUCED,
    gaps=_NO_SUM,
    ignores=("group_size",),
    refuses=_refused_scatter,
)
def reduce_scatter_tensor(input: Value, reduce_op: str, group_name: Any) -> Value:
    """Split the result of ``all_reduce`` equally along the first dimension; each rank gets one part."""
    return _scattered(input, reduce_op, groups_of(group_name))


@lowers(
    c10d.reduce_scatter_tensor_coalesced.default,
    dtypes=_REDUCED,
    gaps=_NO_SUM,
    ignores=("group_size",),
    refuses=_refused_scatter,
)
def reduce_scatter_tensor_coalesced(inputs: Sequence[Value], reduce_op: str, group_name: Any) -> list[Value]:
    """``reduce_scatter_tensor`` of each tensor of a list."""
    groups = groups_of(group_name)
    return [_scattered(x, reduce_op, groups) for x in inputs]


# all splits have one size, which follows from the shape
@lowers(
    c10d.all_to_all_single.default,
    autograd.all_to_all_single.default,
    dtypes=COPYABLE,
    ignores=("output_split_sizes", "input_split_sizes"),
    refuses=_refused_splits,
)
def all_to_all_single(input: Value, group_name: Any) -> Value:
    """Split each rank's tensor equally along the first dimension; each rank gets its part of every tensor."""
    return _exchanged(input, 0, 0, groups_of(group_name))


@lowers(dtensor.shard_dim_alltoall.default, dtypes=COPYABLE, refuses=_refused_group)
def shard_dim_alltoall(input: Value, gather_dim: int, shard_dim: int, group_name: Any) -> Value:
    """Change a tensor that is sharded along ``gather_dim`` to one that is sharded along ``shard_dim``."""
    split, concat = shard_dim % input.rank, gather_dim % input.rank
    return _exchanged(input, split, concat, groups_of(group_name))


@lowers(c10d.broadcast.default, dtypes=COPYABLE, refuses=_refused_group)
def broadcast(input: Value, src: int, group_name: Any) -> Value:
    """The tensor of the group's rank ``src``.

    XLA's CPU engine has no ``collective_broadcast``, so ranks add up its bits and zeros of the other ranks.
    """
    return _broadcast(input, src, groups_of(group_name))


@lowers(c10d.wait_tensor.default, dtypes=COPYABLE, refuses=run_alone)
def wait_tensor(tensor: Value) -> Value:
    """The tensor itself, because a program waits for collectives by itself."""
    return tensor
