"""Rules for operators that take parts of tensors, join or reshape them, or make new tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Any

import sympy
import torch
from torch.fx import Node

from ..operators.implicit import selected_rows
from .calls import called, is_unknown_number, rule
from .sizes import NoForm, Trace, given_values, is_unknown_size

Tensor = torch.Tensor
aten = torch.ops.aten


@rule("view reshape _unsafe_view _reshape_copy")
def view(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, value = given["self"], node.meta["val"]
    if not trace.dims(source):
        return called(trace, node)
    if _is_in_one_piece(source.meta["val"].shape, value.shape, trace.counts.keys()):
        return trace.values[source].reshape(trace.shape(value))
    return _spread(trace, value, _packed(trace, source))


def _packed(trace: Trace, source: Node) -> Tensor:
    """Return the real elements of a tensor in their order, flat, followed by padding."""
    tensor, inside = trace.values[source], trace.real(source)
    assert inside is not None
    return selected_rows(tensor.flatten(), inside.expand(tensor.shape).flatten(), tensor.numel())


def _spread(trace: Trace, value: Tensor, packed: Tensor) -> Tensor:
    """Return the elements of ``packed`` in the padded shape of ``value``."""
    place, stride = torch.zeros((), dtype=torch.int64), torch.ones((), dtype=torch.int64)
    for dim in reversed(range(value.ndim)):
        along = torch.arange(trace.physical(value.shape[dim]))
        place = place + (along * stride).reshape([-1 if at == dim else 1 for at in range(value.ndim)])
        stride = stride * trace.number(value.shape[dim])
    return packed[place.expand(trace.shape(value)).clamp(max=packed.shape[0] - 1)]


def _is_in_one_piece(before: Sequence[Any], after: Sequence[Any], unknown: Set[Any]) -> bool:
    """Whether a reshape joins and splits no dimensions in a way that puts padding between elements."""

    def expression(size: Any) -> Any:
        return size.node.expr if isinstance(size, torch.SymInt) else size

    old, new = list(map(expression, before)), list(map(expression, after))
    while old or new:
        left, right = old[:1], new[:1]
        old, new = old[1:], new[1:]
        while math.prod(left) != math.prod(right):
            if not old and not new:
                return False
            longer = _is_larger(math.prod(left), math.prod(right))
            if new and (longer or not old):
                right.append(new.pop(0))
            else:
                left.append(old.pop(0))
        for side in (left, right):
            large = [size for size in side if size != 1]
            inner = any(unknown & getattr(size, "free_symbols", set()) for size in large[1:])
            if inner and len(left) + len(right) > 2:
                return False
    return True


def _is_larger(one: Any, other: Any) -> bool:
    """Whether one product of sizes is larger than the other, as far as their expressions tell."""
    if other == 0:
        return bool(one != 0)
    ratio = sympy.cancel(sympy.sympify(one) / other)
    upper, _ = sympy.fraction(ratio)
    return bool(upper.free_symbols) if ratio.free_symbols else bool(ratio > 1)


@rule("expand")
def expand(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    return trace.values[given["self"]].expand(trace.shape(node.meta["val"]))


@rule("repeat")
def repeat(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, tensor, repeats = given["self"], trace.values[given["self"]], list(given["repeats"])
    new = len(repeats) - tensor.ndim
    for dim, expr in trace.dims(source).items():
        times = repeats[new + dim]
        if isinstance(times, Node):
            raise NoForm("it repeats a size that depends on values a symbolic number of times")
        places = torch.arange(tensor.shape[dim] * times) % trace.count(expr).clamp(min=1)
        tensor, repeats[new + dim] = tensor.index_select(dim, places), 1
    return tensor.repeat(given_values(trace, repeats))


@rule("unfold")
def unfold(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    if given["dimension"] % max(given["self"].meta["val"].ndim, 1) in trace.dims(given["self"]):
        raise NoForm("it takes windows of a size that depends on values")
    return called(trace, node)


@rule("slice")
def slice_(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, start, step = given["self"], given["start"] or 0, given["step"]
    tensor, value = trace.values[source], source.meta["val"]
    dim = given["dim"] % value.ndim
    padded = dim in trace.dims(source)
    if not padded and not any(map(_depends_on_values, (start, given["end"]))):
        return called(trace, node)
    length = trace.physical(node.meta["val"].shape[dim])
    if isinstance(start, int) and (start >= 0 or not padded):
        first = start if start >= 0 else start + trace.physical(value.shape[dim])
        return aten.slice.Tensor(tensor, dim, first, first + length * step, step)
    if step != 1:
        raise NoForm("its start depends on values, and its step is not 1")
    end = trace.number(value.shape[dim])
    first = trace.number(start)
    first = torch.where(first < 0, first + end, first) if isinstance(first, Tensor) else end + first
    places = (first.clamp(min=0) + torch.arange(length)).clamp(max=tensor.shape[dim] - 1)
    return tensor.index_select(dim, places)


def _depends_on_values(number: Any) -> bool:
    return isinstance(number, Node) and is_unknown_size(number.meta.get("val"))


@rule("select")
def select(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, tensor = given["self"], trace.values[given["self"]]
    dim = given["dim"] % tensor.ndim
    if dim not in trace.dims(source) and not _depends_on_values(given["index"]):
        return called(trace, node)
    end, at = trace.number(source.meta["val"].shape[dim]), trace.number(given["index"])
    if not isinstance(at, Tensor):
        at = torch.scalar_tensor(at, dtype=torch.int64)
    at = torch.where(at < 0, at + end, at)
    trace.require(node, (at >= 0) & (at < end), f"the index is within dimension {dim}")
    return tensor.index_select(dim, at.clamp(0, tensor.shape[dim] - 1).reshape(1)).squeeze(dim)


@rule("unbind split chunk")
def parts(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    if given["dim"] % given["self"].meta["val"].ndim in trace.dims(given["self"]):
        raise NoForm("it splits a size that depends on values into as many parts")
    return called(trace, node)


@rule("split_with_sizes")
def split_with_sizes(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, pieces = given["self"], []
    dim, tensor = given["dim"] % source.meta["val"].ndim, trace.values[source]
    start = torch.scalar_tensor(0, dtype=torch.int64)
    for size, expected in zip(given["split_sizes"], node.meta["val"], strict=True):
        places = start + torch.arange(trace.physical(expected.shape[dim]))
        pieces.append(tensor.index_select(dim, places.clamp(max=tensor.shape[dim] - 1)))
        start = start + trace.number(size)
    return pieces


@rule("flip")
def flip(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, tensor = given["self"], trace.values[given["self"]]
    padded = trace.dims(source)
    plain = [dim for dim in (one % tensor.ndim for one in given["dims"]) if dim not in padded]
    for dim in (one % tensor.ndim for one in given["dims"]):
        if dim in padded:
            places = (trace.count(padded[dim]) - 1 - torch.arange(tensor.shape[dim])).clamp(min=0)
            tensor = tensor.index_select(dim, places)
    return tensor.flip(plain) if plain else tensor


@rule("diagonal diagonal_copy")
def diagonal(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source = given["self"]
    rank = source.meta["val"].ndim
    if not trace.dims(source).keys() & {given["dim1"] % rank, given["dim2"] % rank}:
        return called(trace, node)
    length = trace.physical(node.meta["val"].shape[-1])
    return called(trace, node).narrow(-1, 0, length)  # the real elements come first


@rule("roll")
def roll(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, tensor = given["self"], trace.values[given["self"]]
    padded = trace.dims(source)
    if any(map(_depends_on_values, given["shifts"])):
        raise NoForm("it moves elements by a number that depends on values")
    if not given["dims"]:
        if padded.keys() - {0} or tensor.ndim > 1:
            raise NoForm("it moves elements across rows")
        given = {**given, "dims": [0]}
    for dim, shift in zip(given["dims"], given["shifts"], strict=True):
        dim = dim % tensor.ndim
        if dim in padded:
            places = (torch.arange(tensor.shape[dim]) - shift) % trace.count(padded[dim]).clamp(min=1)
            tensor = tensor.index_select(dim, places)
        else:
            tensor = tensor.roll(shift, dim)
    return tensor


@rule("cat")
def cat(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    sources, value = given["tensors"], node.meta["val"]
    dim = given["dim"] % value.ndim
    if not any(dim in trace.dims(one) for one in sources):
        return called(trace, node)
    shape = trace.shape(value)
    room = shape[dim]
    made = torch.zeros([*shape[:dim], room + 1, *shape[dim + 1 :]], dtype=value.dtype)
    start = torch.scalar_tensor(0, dtype=torch.int64)
    for one in sources:
        tensor = trace.values[one].to(value.dtype)
        if tensor.ndim != value.ndim:
            continue  # PyTorch skips empty tensors of one dimension
        count = trace.number(one.meta["val"].shape[dim])
        places = torch.arange(tensor.shape[dim])
        made = made.index_copy(dim, torch.where(places < count, start + places, room), tensor)
        start = start + count
    return made.narrow(dim, 0, room)


@rule("constant_pad_nd")
def constant_pad(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    rank, pad = given["self"].meta["val"].ndim, given["pad"]
    wanted = {
        rank - 1 - place // 2 for place, size in enumerate(pad) if not isinstance(size, int) or size != 0
    }
    if any(not isinstance(size, int) or size < 0 for size in pad):
        raise NoForm("it pads by a number that is negative or depends on values")
    return called(trace, node, self=trace.filled(given["self"], given["value"] or 0, sorted(wanted)))


@rule("full zeros ones empty new_full new_zeros new_ones new_empty scalar_tensor rand randn")
def new(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    value = node.meta["val"]
    number = given.get("fill_value", given.get("s"))
    if isinstance(number, Node) and is_unknown_number(number):
        return trace.number(number).to(value.dtype).expand(trace.shape(value)).clone()
    return called(trace, node, **({"size": trace.shape(value)} if "size" in given else {}))


@rule("arange")
def arange(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    value = node.meta["val"]
    start, step = given.get("start", 0), given.get("step", 1)
    if not any(map(_depends_on_values, given.values())):
        return called(trace, node)
    if _depends_on_values(step) or value.dtype.is_floating_point:
        raise NoForm("its step depends on values")
    return (trace.number(start) + torch.arange(trace.shape(value)[0]) * step).to(value.dtype)
