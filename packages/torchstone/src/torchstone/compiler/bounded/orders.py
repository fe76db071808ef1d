"""Rules for operators that depend on the order of elements: sorting, order statistics, and searching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from ...torch_internals.operators import schema_of
from .calls import called, rule
from .reductions import elements, greatest, last, least, rule_over_padding
from .sizes import NoForm, Trace

Tensor = torch.Tensor


@rule_over_padding("sort")
def sort(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    dtype = given["self"].meta["val"].dtype
    fill = least(dtype) if given["descending"] else last(dtype)
    return torch.sort(
        trace.filled(given["self"], fill, dims), dim=given["dim"], descending=given["descending"], stable=True
    )


@rule_over_padding("topk")
def topk(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source, dtype = given["self"], given["self"].meta["val"].dtype
    if isinstance(given["k"], Node):
        raise NoForm("it takes a number of elements that depends on values")
    trace.require(
        node, elements(trace, source, dims) >= given["k"], f"there are at least {given['k']} elements"
    )
    fill = least(dtype) if given["largest"] else last(dtype)
    # The sort is stable, so padding comes after elements that equal it.
    found = torch.sort(
        trace.filled(source, fill, dims), dim=given["dim"], descending=given["largest"], stable=True
    )
    return found[0].narrow(given["dim"], 0, given["k"]), found[1].narrow(given["dim"], 0, given["k"])


@rule_over_padding("median nanmedian kthvalue")
def order_statistic(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    """Return the element at one position of the sorted elements: numbers, then NaN, then padding."""
    name, source = schema_of(node.target).name.removeprefix("aten::"), given["self"]
    dtype, whole = source.meta["val"].dtype, "dim" not in given
    if isinstance(given.get("k"), Node):
        raise NoForm("it takes an index that depends on values")
    real, number = trace.real(source, dims), elements(trace, source, dims)
    needed = given.get("k", 1)
    if not whole or not dtype.is_floating_point:  # the median of no floats at all is NaN
        trace.require(node, number >= needed, f"it is of at least {needed} element(s)")
    tensor = trace.filled(source, last(dtype), dims)
    # How many real elements of each row are not NaN.
    numbers = ((tensor == tensor) & real).sum(dims, keepdim=True)
    at = {
        "median": torch.where(numbers < number, numbers, (number - 1) // 2),
        "nanmedian": (numbers - 1) // 2,
        "kthvalue": torch.full_like(numbers, needed - 1),
    }[name].clamp(min=0)
    if whole:
        return tensor.flatten().sort(stable=True)[0].gather(0, at.flatten()).reshape(())
    (dim,) = dims
    found = [one.gather(dim, at) for one in tensor.sort(dim=dim, stable=True)]
    return tuple(found if given["keepdim"] else (one.squeeze(dim) for one in found))


@rule_over_padding("mode")
def mode(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    """Return the smallest of the most frequent elements, and its last position."""
    source, (dim,) = given["self"], dims
    count = elements(trace, source, dims)
    trace.require(node, count > 0, "it is of at least one element")
    tensor = trace.filled(source, last(source.meta["val"].dtype), [dim]).transpose(dim, -1)
    ordered, order = tensor.sort(dim=-1, stable=True)
    place = torch.arange(ordered.shape[-1])
    changes = torch.where(ordered[..., 1:] != ordered[..., :-1], place[1:], 0)
    begins = torch.nn.functional.pad(changes.cummax(-1).values, (1, 0))
    at = torch.where(place < count, place - begins, -1).argmax(-1, keepdim=True)
    found = [one.gather(-1, at).transpose(dim, -1) for one in (ordered, order)]
    return tuple(found if given["keepdim"] else (one.squeeze(dim) for one in found))


@rule("searchsorted bucketize")
def search(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    name = "boundaries" if "boundaries" in given else "sorted_sequence"
    source = given[name]
    if not trace.dims(source):
        return called(trace, node)
    if given.get("sorter") is not None:
        raise NoForm("it takes an order of elements")
    dim = source.meta["val"].ndim - 1
    found = called(trace, node, **{name: trace.filled(source, greatest(source.meta["val"].dtype), [dim])})
    number = elements(trace, source, [dim])
    return torch.minimum(found, number.to(found.dtype))
