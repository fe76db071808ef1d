"""Rules for sizes and numbers that depend on values (masks, ``unique``, ``item``), and for checks of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Node

from ..operators.implicit import selected_rows
from .calls import called, is_operator, rule
from .indices import indices_in, places_of
from .reductions import last
from .sizes import NoForm, Trace, is_unknown_size, unknown_in

Tensor = torch.Tensor
aten = torch.ops.aten

_MOST_KEYS = 64
"""The most elements of a slice that ``unique(dim=…)`` compares: each of them needs a sort of its own."""
_HOW_LARGE = "nothing says how large that may become: call torch._check(result.shape[0] <= …)"


@rule("_local_scalar_dense")
def item(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    number = trace.values[given["self"]].reshape(())
    if not isinstance(node.meta["val"], (torch.SymInt, torch.SymFloat)):
        raise NoForm("it turns a value that is not a number into a Python number")
    trace.define(node, node.meta["val"], number)
    return number


@rule("nonzero")
def nonzero(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    mask = trace.filled(given["self"], 0) != 0
    bound = trace.define(node, node.meta["val"], mask.sum(), mask.numel())
    if not mask.ndim:
        return torch.zeros((bound, 0), dtype=torch.int64)
    return torch.stack(places_of(mask, bound), 1)


@rule("masked_select")
def masked_select(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    x, chosen = torch.broadcast_tensors(trace.values[given["self"]], trace.filled(given["mask"], False))
    inside = trace.real(given["self"])
    chosen = chosen if inside is None else chosen & inside
    bound = trace.define(node, node.meta["val"], chosen.sum(), x.numel())
    return selected_rows(x.flatten(), chosen.flatten(), bound)


@rule("index")
def index(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    indices: list[Any] = []
    for one in given["indices"]:
        if one is None or one.meta["val"].dtype != torch.bool:
            indices.append(one)
            continue
        mask = trace.filled(one, False)
        bound = trace.define(node, node.meta["val"], mask.sum(), mask.numel())
        if not mask.ndim:
            raise NoForm("its mask has no dimensions")
        indices += places_of(mask, bound)
    if any(isinstance(one, Node) and one.meta["val"].dtype == torch.uint8 for one in indices):
        raise NoForm("its index is a uint8 mask")
    return aten.index.Tensor(trace.values[given["self"]], indices_in(trace, given["self"], indices))


@rule("repeat_interleave")
def repeat_interleave(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    if "repeats" not in given or "self" in given or not is_unknown_size(node.meta["val"].shape[0]):
        return called(trace, node)
    ends = trace.filled(given["repeats"], 0).cumsum(0)
    bound = trace.define(node, node.meta["val"], ends[-1])
    if bound is None:
        raise NoForm(_HOW_LARGE)
    found = torch.searchsorted(ends, torch.arange(bound), right=True)
    return found.clamp(max=ends.shape[0] - 1).to(node.meta["val"].dtype)


@rule("bincount")
def bincount(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, value = given["self"], node.meta["val"]
    number = trace.filled(source, -1).amax().to(torch.int64) + 1 if trace.values[source].numel() else 0
    count = torch.scalar_tensor(given["minlength"], dtype=torch.int64).clamp(min=number)
    bound = trace.define(node, value, count)
    if bound is None:
        raise NoForm(_HOW_LARGE)
    trace.require(node, trace.filled(source, 0).amin() >= 0, "its numbers are not negative")
    places = torch.where(trace.filled(source, -1) < 0, bound, trace.values[source].to(torch.int64))
    weights = given["weights"]
    added = torch.ones_like(places) if weights is None else trace.values[weights]
    return torch.zeros(bound + 1, dtype=value.dtype).index_add(
        0, places.clamp(max=bound), added.to(value.dtype)
    )[:bound]


@rule("_unique2 unique_consecutive")
def unique(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    source, consecutive = given["self"], is_operator(node, "unique_consecutive")
    if given.get("dim") is not None:
        return unique_slices(trace, node, given)
    inside, tensor = trace.real(source), trace.values[source]
    if consecutive and max(trace.dims(source), default=0) > 0:
        raise NoForm("its elements are not in one piece")
    flat = trace.filled(source, last(tensor.dtype)).flatten()
    real = torch.ones_like(tensor, dtype=torch.bool) if inside is None else inside.expand(tensor.shape)
    real = real.flatten()
    if consecutive:
        ordered, order = flat, torch.arange(flat.shape[0])
    else:
        ordered, order = flat.sort(stable=True)
        real = torch.arange(flat.shape[0]) < real.sum()
    first = torch.cat([torch.ones(1, dtype=torch.bool), ordered[1:] != ordered[:-1]])[: flat.shape[0]] & real
    values, inverse, counts = _groups(trace, node, ordered, order, first, real)
    none = torch.zeros(0, dtype=torch.int64)
    inverse = inverse.reshape(tensor.shape) if given["return_inverse"] else none
    return values, inverse, counts if given["return_counts"] else none


@rule("unique_dim")
def unique_slices(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    """Sort slices in lexicographic order, by a stable sort for each of their elements, last element first."""
    source, dim = given["self"], given["dim"] % given["self"].meta["val"].ndim
    if trace.dims(source).keys() - {dim}:
        raise NoForm("it compares slices whose size depends on values")
    tensor = trace.values[source].movedim(dim, 0)
    size = tensor.shape[0]
    rows = tensor.reshape(size, -1)
    if not isinstance(rows.shape[1], int) or rows.shape[1] > _MOST_KEYS:
        raise NoForm(f"it compares slices of more than {_MOST_KEYS} elements")
    count = trace.count(trace.dims(source)[dim]) if trace.dims(source) else torch.scalar_tensor(size)
    real = torch.arange(size) < count
    order = torch.arange(size)
    if is_operator(node, "unique_dim"):
        for key in (*rows.unbind(1)[::-1], ~real):
            order = order[key[order].sort(stable=True)[1]]
    ordered = rows[order]
    differs = (ordered[1:] != ordered[:-1]).any(1)
    first = torch.cat([torch.ones(1, dtype=torch.bool), differs])[:size] & real
    values, inverse, counts = _groups(trace, node, ordered, order, first, real)
    return values.reshape(-1, *tensor.shape[1:]).movedim(0, dim), inverse, counts


def _groups(
    trace: Trace, node: Node, ordered: Tensor, order: Tensor, first: Tensor, real: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the first row of each group of equal rows, the group of each row, and the group sizes."""
    bound = trace.define(node, node.meta["val"][0], first.sum(), order.shape[0])
    place = first.cumsum(0) - 1
    inverse = torch.zeros_like(place).scatter(0, order, place)
    where = torch.where(real & (place < bound), place, bound)
    counts = torch.zeros(bound + 1, dtype=torch.int64).index_add(0, where, torch.ones_like(where))[:bound]
    return selected_rows(ordered, first, bound), inverse, counts


@rule("_assert_scalar")
def assert_scalar(trace: Trace, node: Node, given: Mapping[str, Any]) -> None:
    condition = given["self"]
    value = condition.meta["val"] if isinstance(condition, Node) else condition
    if not isinstance(value, torch.SymBool) or not unknown_in(value):
        return
    if not unknown_in(value) <= trace.counts.keys():
        return  # about the storage offset of a view: the rule of the view's operator checks the index
    expr = value.node.expr
    if _is_certain(trace, expr):
        return
    where = [f"{one} comes from {trace.origins[one]}" for one in sorted(unknown_in(value), key=str)]
    trace.require(node, trace.count(expr), f"{expr}, where {' and '.join(where)}")


def _is_certain(trace: Trace, expr: Any) -> bool:
    """Whether a condition holds for every count: it is at least 0, or at most the operator's own bound."""
    form, arguments = type(expr).__name__, expr.args
    if form not in ("GreaterThan", "LessThan") or not arguments[0].is_Symbol or not arguments[1].is_Integer:
        return False
    natural = trace.naturals.get(arguments[0])
    if natural is None:
        return False
    if form == "GreaterThan":
        return bool(arguments[1] <= 0)
    return isinstance(natural, int) and bool(arguments[1] >= natural)


@rule("sym_constrain_range sym_constrain_range_for_size _assert_tensor_metadata")
def nothing(trace: Trace, node: Node, given: Mapping[str, Any]) -> None:
    return None
