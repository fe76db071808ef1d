"""Decomposes operators on lists of tensors (``torch._foreach_*``) into operators on single tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

from ...torch_internals.operators import OpOverload, functional_overloads, overloads_of, schema_of

Call: TypeAlias = tuple[OpOverload, tuple[Any, ...], dict[str, Any]]


def list_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return a decomposition of each operator on lists whose operator on one tensor is known."""
    return {one: partial(_one_by_one, one) for one in _on_lists()}


def _one_by_one(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
    calls = calls_of_single_tensors(operator, args, kwargs)
    return NotImplemented if calls is None else [single(*one, **options) for single, one, options in calls]


@cache
def _on_lists() -> tuple[OpOverload, ...]:
    return tuple(one for one in functional_overloads() if _of_one_tensor(one) is not None)


def calls_of_single_tensors(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Call] | None:
    """Return the calls of, say, ``aten.lerp`` that ``aten._foreach_lerp`` makes; None for other operators."""
    single = _of_one_tensor(operator)
    if single is None or len(args) + len(kwargs) > len(schema_of(single).arguments):
        return None
    length = next(len(one) for one in args if isinstance(one, (list, tuple)))
    names = [argument.name for argument in schema_of(single).arguments]
    positional = sum(not argument.kwarg_only for argument in schema_of(single).arguments)

    def call(place: int) -> Call:
        own = [one[place] if isinstance(one, (list, tuple)) else one for one in args]
        by_name = zip(names[positional:], own[positional:], strict=False)
        return single, tuple(own[:positional]), {**kwargs, **dict(by_name)}

    return map(call, range(length))


@cache
def _of_one_tensor(operator: Any) -> Any:
    """Return ``aten.lerp_.Scalar`` for ``aten._foreach_lerp_.Scalar``; None if there is no such overload."""
    is_aten = isinstance(operator, OpOverload) and operator.namespace == "aten"
    prefix, _, name = schema_of(operator).name.partition("_foreach_") if is_aten else ("", "", "")
    if not name:
        return None
    candidates = [*overloads_of(prefix + name), *overloads_of(prefix + _WITH_NUMBERS.get(name, name))]
    return next((one for one in candidates if _is_for_elements(one, operator)), None)


_WITH_NUMBERS = {
    "maximum": "clamp_min",
    "minimum": "clamp_max",
    "maximum_": "clamp_min_",
    "minimum_": "clamp_max_",
}


def _is_for_elements(single: OpOverload, operator: OpOverload) -> bool:
    """Whether ``single`` takes an element for each list of ``operator``, and otherwise the same arguments."""
    mine, theirs = schema_of(operator).arguments, schema_of(single).arguments
    same = all(_element(one) == str(other.type) for one, other in zip(mine, theirs, strict=False))
    return same and all(one.has_default_value() for one in theirs[len(mine) :])


def _element(argument: Any) -> str:
    name = str(argument.type)
    return name.removeprefix("List[").removesuffix("]") if name.startswith("List[") else name
