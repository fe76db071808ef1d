"""Rules for operators that combine elements: reductions and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Node

from ...torch_internals.operators import schema_of
from .calls import called, is_operator, rule
from .sizes import NoForm, Trace

Tensor = torch.Tensor


def least(dtype: torch.dtype) -> Any:
    """Return the smallest value of a real dtype."""
    if dtype == torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min


def greatest(dtype: torch.dtype) -> Any:
    """Return the largest value of a real dtype."""
    if dtype == torch.bool:
        return True
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def last(dtype: torch.dtype) -> Any:
    """Return a value that a stable ascending sort puts after all elements."""
    return math.nan if dtype.is_floating_point else greatest(dtype)


_IDENTITIES: Mapping[str, Any] = {
    "sum": 0, "nansum": 0, "prod": 1, "any": False, "all": True, "count_nonzero": 0,
    "amax": least, "max": least, "argmax": least, "logsumexp": least,
    "amin": greatest, "min": greatest, "argmin": greatest,
}  # fmt: skip
_OF_SOMETHING = ("amax", "max", "argmax", "amin", "min", "argmin")


def reduced(given: Mapping[str, Any], rank: int) -> list[int]:
    """Return the dimensions in the argument ``dim`` of a call; all dimensions if it names none."""
    dims = given.get("dim")
    if dims is None or dims == []:
        return list(range(rank))
    return [dim % rank if rank else 0 for dim in (dims if isinstance(dims, (list, tuple)) else [dims])]


RuleOverPadding = Callable[[Trace, Node, Mapping[str, Any], list[int]], Any]


def rule_over_padding(names: str) -> Callable[[RuleOverPadding], RuleOverPadding]:
    """Like ``rule``, for operators that work along some dimensions of ``self``; the function gets these too.

    The function is used only if one of these dimensions has padding. Otherwise, the plain call on padded
    tensors is right.
    """

    def register(function: RuleOverPadding) -> RuleOverPadding:
        @rule(names)
        def of_any(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
            dims = reduced(given, given["self"].meta["val"].ndim)
            if not trace.dims(given["self"]).keys() & set(dims):
                return called(trace, node)
            return function(trace, node, given, dims)

        return function

    return register


def elements(trace: Trace, source: Node, dims: Sequence[int]) -> Tensor:
    """Return how many real elements a reduction over ``dims`` combines, as a 0-d tensor."""
    value, padded = source.meta["val"], trace.dims(source)
    number = torch.scalar_tensor(1, dtype=torch.int64)
    for dim in dims:
        number = number * (trace.count(padded[dim]) if dim in padded else trace.physical(value.shape[dim]))
    return number


@rule_over_padding(" ".join(_IDENTITIES))
def reduction(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    name, source = schema_of(node.target).name.removeprefix("aten::"), given["self"]
    if isinstance(given.get("other"), Node):  # max and min of two tensors
        return called(trace, node)
    dtype = source.meta["val"].dtype
    if dtype.is_complex and name not in ("sum", "prod"):
        raise NoForm(f"it is of {dtype}")
    if name in ("argmax", "argmin") and given["dim"] is None and max(trace.dims(source)) > 0:
        raise NoForm("it numbers elements that padding lies between")
    fill = _IDENTITIES[name]
    if name in _OF_SOMETHING:
        trace.require(node, elements(trace, source, dims) > 0, "it is of at least one element")
    return called(trace, node, self=trace.filled(source, fill(dtype) if callable(fill) else fill, dims))


@rule_over_padding("mean")
def mean(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source, value = given["self"], node.meta["val"]
    wide = torch.promote_types(value.dtype, torch.float32)
    total = trace.filled(source, 0, dims).to(wide).sum(dims, keepdim=given.get("keepdim", False))
    return (total / elements(trace, source, dims)).to(value.dtype)


@rule_over_padding("var std var_mean std_mean")
def var(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source, dtype = given["self"], given["self"].meta["val"].dtype
    if dtype.is_complex or "correction" not in given:
        raise NoForm("its form is not known")
    wide = torch.promote_types(dtype, torch.float32)
    number = elements(trace, source, dims)
    tensor = trace.filled(source, 0, dims).to(wide)
    center = tensor.sum(dims, keepdim=True) / number
    far = torch.where(trace.real(source, dims), tensor - center, torch.scalar_tensor(0, dtype=wide))  # type: ignore[arg-type]
    correction = 1 if given["correction"] is None else given["correction"]
    found = (far * far).sum(dims, keepdim=given["keepdim"]) / (number - correction).clamp(min=0)
    if is_operator(node, "std") or is_operator(node, "std_mean"):
        found = found.sqrt()
    if isinstance(node.meta["val"], Tensor):
        return found.to(dtype)
    return found.to(dtype), (center if given["keepdim"] else center.reshape(found.shape)).to(dtype)


@rule_over_padding("aminmax")
def aminmax(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source, dtype = given["self"], given["self"].meta["val"].dtype
    trace.require(node, elements(trace, source, dims) > 0, "it is of at least one element")
    smallest = trace.filled(source, greatest(dtype), dims).amin(dims, keepdim=given["keepdim"])
    return smallest, trace.filled(source, least(dtype), dims).amax(dims, keepdim=given["keepdim"])


@rule_over_padding("linalg_vector_norm")
def vector_norm(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source, power = given["self"], given["ord"]
    if math.isinf(power) or power < 0:
        trace.require(node, elements(trace, source, dims) > 0, "it is of at least one element")
    return called(trace, node, self=trace.filled(source, math.inf if power < 0 else 0, dims))


@rule_over_padding("_softmax _log_softmax")
def softmax(trace: Trace, node: Node, given: Mapping[str, Any], dims: list[int]) -> Any:
    source = given["self"]
    return called(trace, node, self=trace.filled(source, least(source.meta["val"].dtype), dims))


@rule("native_layer_norm _fused_rms_norm")
def layer_norm(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    value = given["input"].meta["val"]
    if max(trace.dims(given["input"]), default=-1) >= value.ndim - len(given["normalized_shape"]):
        raise NoForm("it normalizes over a size that depends on values")
    return called(trace, node)


@rule("native_group_norm")
def group_norm(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    if trace.dims(given["input"]).keys() - {0} or isinstance(given["HxW"], Node):
        raise NoForm("it normalizes over a size that depends on values")
    return called(trace, node, N=trace.physical(given["input"].meta["val"].shape[0]))


@rule("_cdist_forward cdist")
def distances(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    if any(given[name].meta["val"].ndim - 1 in trace.dims(given[name]) for name in ("x1", "x2")):
        raise NoForm("its points have sizes that depend on values")
    return called(trace, node)


@rule("mm bmm mv dot addmm baddbmm addmv matmul linear einsum")
def product(trace: Trace, node: Node, given: Mapping[str, Any]) -> Any:
    def filled(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [filled(one) for one in value]
        return trace.filled(value, 0) if isinstance(value, Node) else value

    of_tensors = (name for name, value in given.items() if name == "tensors" or trace.dims(value))
    return called(trace, node, **{name: filled(given[name]) for name in of_tensors})
