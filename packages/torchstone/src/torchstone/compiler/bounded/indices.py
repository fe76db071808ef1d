"""Rules for reads and writes by indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from ..operators.implicit import selected_rows
from .calls import called, rule
from .sizes import NoForm, Trace

Tensor = torch.Tensor
aten = torch.ops.aten


def places_of(mask: Tensor, bound: Any) -> list[Tensor]:
    """Return the indices of the elements that ``mask`` selects, per dimension, padded to ``bound``."""
    flat = selected_rows(torch.arange(mask.numel()), mask.flatten(), bound)
    places = []
    for size in reversed(mask.shape):
        places.append(flat % size)
        flat = flat // size
    return places[::-1]


def indices_in(trace: Trace, of: Node, indices: Sequence[Any]) -> list[Tensor | None]:
    """Return indices with padding set to 0, and with negative ones counted from the end of real elements."""
    return [
        one if one is None or isinstance(one, Tensor) else places_in(trace, of, dim, one)
        for dim, one in enumerate(indices)
    ]


def places_in(trace: Trace, of: Node, dim: int, index: Node) -> Tensor:
    """Return an index along ``dim`` of a tensor, adjusted as in :func:`indices_in`."""
    places: Tensor = trace.filled(index, 0)
    expr = trace.dims(of).get(dim)
    return places if expr is None else torch.where(places < 0, places + trace.count(expr), places)


@rule("index_select gather embedding take_along_dim")
def read(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    name = "indices" if "indices" in given else "index"
    of, dim = given.get("self", given.get("weight")), given.get("dim", 0)
    dim = dim % max(of.meta["val"].ndim, 1)
    return called(trace, node, **{name: places_in(trace, of, dim, given[name])})


@rule("one_hot")
def one_hot(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    return called(trace, node, self=trace.filled(given["self"], 0))


@rule("scatter scatter_add scatter_reduce index_add index_copy index_fill index_reduce")
def write(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    target, index = given["self"], given["index"]
    tensor, dim = trace.values[target], given["dim"] % max(target.meta["val"].ndim, 1)
    places, inside = places_in(trace, target, dim, index), trace.real(index)
    if inside is None:
        if any(trace.dims(one) for one in node.all_input_nodes if one is not target):
            raise NoForm("its source is longer than its index")
        return called(trace, node, index=places)
    # Padding is written into an extra row, which is then cut off.
    size = tensor.shape[dim]
    places = torch.where(places < 0, places + size, places)
    longer = torch.cat([tensor, _row_of_zeros(tensor, dim)], dim)
    return called(trace, node, self=longer, index=torch.where(inside, places, size)).narrow(dim, 0, size)


def _row_of_zeros(tensor: Tensor, dim: int) -> Tensor:
    return torch.zeros([1 if at == dim else size for at, size in enumerate(tensor.shape)], dtype=tensor.dtype)


@rule("index_put")
def index_put(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    target, values = given["self"], given["values"]
    masks = [one for one in given["indices"] if one is not None and one.meta["val"].dtype == torch.bool]
    padded = [one for one in given["indices"] if one is not None and trace.dims(one)]
    if not padded and not trace.dims(values) and not trace.dims(target):
        return called(trace, node)
    if any(one is not None and one.meta["val"].dtype == torch.uint8 for one in given["indices"]):
        raise NoForm("its index is a uint8 mask")
    tensor, places, real = trace.values[target], list[Any](), torch.ones(1, dtype=torch.bool)
    for one in given["indices"]:
        if one in masks:
            mask = trace.filled(one, False)
            room = _most(trace, values, mask)
            places += places_of(mask, room)
            real = real & (torch.arange(room) < mask.sum())
        else:
            places.append(None if one is None else places_in(trace, target, len(places), one))
            inside = None if one is None else trace.real(one)
            real = real if inside is None else real & inside
    first = next(dim for dim, one in enumerate(places) if one is not None)
    size = tensor.shape[first]
    inside = torch.where(places[first] < 0, places[first] + size, places[first])
    places[first] = torch.where(real, inside, size)  # padding goes to an extra row, which is cut off
    longer = torch.cat([tensor, _row_of_zeros(tensor, first)], first)
    made = aten.index_put.default(longer, places, trace.values[values], given["accumulate"])
    return made.narrow(first, 0, size)


def _most(trace: Trace, values: Node, mask: Tensor) -> Any:
    """Return how many places a mask may select: the room in ``values`` if these have padding, else all."""
    padded = trace.dims(values)
    if not padded:
        return mask.numel()
    return trace.physical(values.meta["val"].shape[min(padded)])
