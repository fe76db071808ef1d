"""How to call each operator in PyTorch: the function named by its tag ``torch:NAME``, and its arguments.

Most operators are called as ``function(*inputs, **attributes)``. The tables here list the
operators whose arguments PyTorch takes in another way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch

from ..core.case import TestCase
from ..operators.descriptor import OperatorDescriptor
from .tensors import torch_dtype

Tensors = tuple[torch.Tensor, ...]
Call = Callable[..., Any]
Rule = Callable[[Call, Sequence[torch.Tensor], dict[str, Any]], Any]

TAG = "torch:"


def function_name(descriptor: OperatorDescriptor) -> str | None:
    """Return the dotted name of PyTorch's equivalent, if the operator's tags name one."""
    return next((tag.removeprefix(TAG) for tag in descriptor.tags if tag.startswith(TAG)), None)


@cache
def find_function(name: str) -> Call:
    """Return the function with a dotted name; raises ``NotImplementedError`` if this PyTorch lacks it."""
    found: Any = torch
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    if not callable(found):
        raise NotImplementedError(f"PyTorch {torch.__version__} has no {name}")
    return found


def call_of(case: TestCase) -> Callable[..., Tensors]:
    """Return a function from the case's inputs to its outputs, with the attributes bound.

    Raises ``NotImplementedError`` if PyTorch has no such function.
    """
    name = function_name(case.descriptor)
    if name is None:
        raise NotImplementedError(f"{case.op} has no tag {TAG}NAME that says what PyTorch calls it")
    function = find_function(name)
    attributes = {key: _listed(value) for key, value in case.attributes.items()}
    rule = _RULES.get(case.op) or (_by_name(case.descriptor) if case.op in _BY_NAME else _plain)

    def call(*inputs: torch.Tensor) -> Tensors:
        found = rule(function, inputs, dict(attributes))
        return (found,) if isinstance(found, torch.Tensor) else tuple(found)

    return call


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, tuple) else value


# How functions take their arguments -----------------------------------------------------


def _plain(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    return function(*inputs, **attributes)


def _by_name(descriptor: OperatorDescriptor) -> Rule:
    """Return a rule that passes inputs as keywords, by their aliases: PyTorch orders them differently."""
    names = {place: alias for alias, place in descriptor.aliases.items()}

    def rule(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
        keywords = {names[place]: one for place, one in zip(descriptor.inputs, inputs, strict=True)}
        return function(**keywords, **attributes)

    return rule


def _sequence(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Pass the tensors as one list."""
    return function(list(inputs), **attributes)


def _positional(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Pass the attributes by position, after the inputs."""
    return function(*inputs, *attributes.values())


def _dim_second(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Pass ``dim`` between the first input and the others."""
    return function(inputs[0], attributes.pop("dim"), *inputs[1:], **attributes)


def _whole(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Reduce everything if ``dim`` is None; PyTorch's function then takes no ``keepdim``."""
    if attributes["dim"] is not None:
        return function(*inputs, **attributes)
    found = function(*inputs)
    return found.reshape([1] * inputs[0].dim()) if attributes["keepdim"] else found


def _every_dim(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Pass an empty list for ``dim`` None; for PyTorch it means every dimension."""
    dim = [] if attributes["dim"] is None else attributes["dim"]
    return function(*inputs, **{**attributes, "dim": dim})


def _tuple_dim(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    dim = attributes["dim"]
    return function(*inputs, tuple(dim) if isinstance(dim, list) else dim)


def _round(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Leave out ``decimals`` if it is 0: PyTorch has another kernel for that."""
    return function(*inputs, **(attributes if attributes["decimals"] else {}))


def _cast(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    return function(*inputs, torch_dtype(attributes["dtype"]))


def _gemm(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    left, right, added = inputs
    left = left.t() if attributes.pop("transpose_a") else left
    right = right.t() if attributes.pop("transpose_b") else right
    return function(added, left, right, **attributes)


def _index(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    return function(inputs[0], list(inputs[1:]), **attributes)


def _index_put(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    return function(inputs[0], tuple(inputs[1:-1]), inputs[-1], **attributes)


def _vector_norm(function: Call, inputs: Sequence[torch.Tensor], attributes: dict[str, Any]) -> Any:
    """Pass the order as a number, even if it is the text ``inf``, as in plans."""
    return function(*inputs, **{**attributes, "ord": float(attributes["ord"])})


_BY_NAME = frozenset(
    {
        "batch_norm",
        "group_norm",
        "instance_norm",
        "layer_norm",
        "masked_attention",
        "rms_norm",
    }
)
_RULES: Mapping[str, Rule] = {
    "amax": _every_dim,
    "amin": _every_dim,
    "cast": _cast,
    "cat": _sequence,
    "channel_shuffle": _positional,
    "gather": _dim_second,
    "gemm": _gemm,
    "index": _index,
    "index_add": _dim_second,
    "index_copy": _dim_second,
    "index_fill": _dim_second,
    "index_put": _index_put,
    "index_select": _dim_second,
    "masked_fill": _positional,
    "prod": _whole,
    "round": _round,
    "scatter": _dim_second,
    "scatter_add": _dim_second,
    "scatter_reduce": _dim_second,
    "slice": _positional,
    "squeeze": _tuple_dim,
    "stack": _sequence,
    "unfold": _positional,
    "vector_norm": _vector_norm,
}
