"""Replaces numbers that change from run to run, such as a learning rate, by tensors.

In a trace, such a number is a ``SymFloat``, which operators take only as a scalar argument. Most of these
operators have a form that takes a 0-d tensor instead, which can be an input of a compiled program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import torch

from ...torch_internals import pytree
from ...torch_internals.dynamo import TENSORIFIED
from ...torch_internals.operators import OpOverload, functional_overloads, overloads_of, schema_of

Tensor = torch.Tensor
AsTensor: TypeAlias = Callable[[torch.SymFloat, torch.dtype, torch.device], Tensor]
"""Makes a 0-d tensor from a number."""


def expanding(table: Mapping[Any, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    """Return decompositions that pass changing numbers as tensors, and otherwise do what ``table`` says.

    PyTorch does this only for sums, differences, products and quotients, and ignores their ``alpha``.
    The values of all other numbers become part of the graph, so that each new value compiles again.
    """
    return {**table, **{one: partial(_expanded, one, table.get(one)) for one in _with_numbers()}}


def _expanded(operator: Any, otherwise: Callable[..., Any] | None, *args: Any, **kwargs: Any) -> Any:
    made = NotImplemented
    if any(isinstance(leaf, torch.SymFloat) for leaf in pytree.tree_leaves((args, kwargs))):
        plain = not kwargs and operator in (TENSORIFIED.find() or ())
        made = NotImplemented if plain else with_tensors(operator, args, kwargs, _times_one)
    if made is not NotImplemented or otherwise is None:
        return made
    return otherwise(*args, **kwargs)


def _times_one(value: torch.SymFloat, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return ``value`` times 1: PyTorch replaces the number in real products. Integer dtypes truncate."""
    factor: Any = value
    real = dtype.to_real() if dtype.is_floating_point or dtype.is_complex else torch.float64
    return (torch.ones((), dtype=real, device=device) * factor).to(dtype)


@cache
def _with_numbers() -> tuple[OpOverload, ...]:
    """Return ATen's functional overloads with number arguments, except those on lists of tensors."""
    return tuple(
        one
        for one in functional_overloads()
        if any(map(_is_number, schema_of(one).arguments)) and not one.name().startswith("aten::_foreach_")
    )


def _is_number(argument: Any) -> bool:
    return str(argument.type) in ("number", "float", "Optional[number]", "Optional[float]")


def with_tensors(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], as_tensor: AsTensor) -> Any:
    """Do a call of ``operator`` that has numbers as arguments, with operators that take tensors instead.

    Half precision computes in single precision and rounds once, as PyTorch's kernels do with numbers.
    Some kernels round the number first, and so does this. Returns ``NotImplemented`` if no operator with
    tensors is known.
    """
    schema = schema_of(operator)
    name = schema.name.removeprefix("aten::")
    base = name.removesuffix("_") if schema.is_mutable else name
    tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")
    if base in _FILLS:
        return _filled(args, kwargs, tensors, as_tensor)
    rule = _RULES.get(base)
    counterpart = None if rule is not None else _counterpart(operator, _places(args), _names(kwargs))
    if not tensors or (rule is None and counterpart is None):
        return NotImplemented
    dtype = torch.result_type(_widest(tensors), 1.0)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def converted(value: Any) -> Any:
        if isinstance(value, torch.SymFloat):
            made = as_tensor(value, wide, device)
            return made.to(dtype).to(wide) if base in _ROUNDING and wide != dtype else made
        if isinstance(value, Tensor) and value.dtype == dtype and wide != dtype:
            return value.to(wide)
        return value

    new_args, new_kwargs = pytree.tree_map(converted, (list(args), dict(kwargs)))
    if rule is not None:
        result = rule(*new_args, **new_kwargs)
    else:
        assert counterpart is not None
        overload, numeric = counterpart
        for place in numeric:
            if place < len(new_args) and isinstance(new_args[place], (int, float)):
                new_args[place] = torch.full((), new_args[place], dtype=wide, device=device)
        result = overload(*new_args, **new_kwargs)
    if isinstance(result, Tensor) and result.dtype == wide != dtype:
        result = result.to(dtype)
    if schema.is_mutable:
        return args[0].copy_(result)
    return result


_ROUNDING = ("add", "sub", "rsub", "remainder", "fmod", "pow")
"""Operators whose kernels round a number to the dtype of a 16-bit tensor first."""
_FILLS = ("full", "full_like", "scalar_tensor")


def _filled(
    args: Sequence[Any], kwargs: Mapping[str, Any], like: Sequence[Tensor], as_tensor: AsTensor
) -> Tensor:
    """Return a new tensor filled with the number: of a given size, like a tensor (``like``), or 0-d."""
    *size, value = args
    dtype = kwargs.get("dtype") or (like[0].dtype if like else torch.get_default_dtype())
    device = kwargs.get("device") or (like[0].device if like else torch.device("cpu"))
    filled = as_tensor(value, dtype, device)
    if like:
        everywhere = torch.ones_like(like[0], **{**kwargs, "dtype": torch.bool})
        return torch.where(everywhere, filled, filled)
    return filled.expand(size[0]).clone() if size else filled


def _widest(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensor that decides the dtype of a result: one with dimensions, if there is one."""
    return max(tensors, key=lambda one: (one.dim() > 0, one.dtype.is_floating_point, one.dtype.itemsize))


def _places(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(place for place, one in enumerate(args) if isinstance(one, torch.SymFloat))


def _names(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, one in kwargs.items() if isinstance(one, torch.SymFloat))


@cache
def _counterpart(operator: Any, places: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """Return the functional overload that takes tensors for numbers, and all places where it does so."""
    name = (
        schema_of(operator).name.removesuffix("_")
        if schema_of(operator).is_mutable
        else schema_of(operator).name
    )
    wanted = schema_of(operator).arguments
    for overload in overloads_of(name):
        schema = schema_of(overload)
        if schema.is_mutable or len(schema.arguments) != len(wanted):
            continue
        numeric = []
        for place, (mine, theirs) in enumerate(zip(wanted, schema.arguments, strict=True)):
            is_number = place in places or mine.name in names
            takes_tensor = str(theirs.type).removeprefix("Optional[").removesuffix("]") == "Tensor"
            if mine.name != theirs.name or (is_number and not takes_tensor):
                break
            if takes_tensor and "Tensor" not in str(mine.type):
                numeric.append(place)
            elif str(mine.type) != str(theirs.type):
                break
        else:
            return overload, tuple(numeric)
    return None


def _add(one: Any, other: Any, alpha: Any = 1) -> Any:
    return (
        torch.add(one, other)
        if isinstance(alpha, int) and alpha == 1
        else torch.add(one, torch.mul(other, alpha))
    )


def _sub(one: Any, other: Any, alpha: Any = 1) -> Any:
    return (
        torch.sub(one, other)
        if isinstance(alpha, int) and alpha == 1
        else torch.sub(one, torch.mul(other, alpha))
    )


def _addmm(add: Any, one: Any, other: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return torch.add(torch.mul(add, beta), torch.mul(torch.matmul(one, other), alpha))


_RULES: dict[str, Callable[..., Any]] = {
    "add": _add,
    "sub": _sub,
    "rsub": lambda one, other, alpha=1: _sub(other, one, alpha),
    "addcmul": lambda add, one, other, *, value=1: torch.add(add, torch.mul(torch.mul(one, value), other)),
    "addcdiv": lambda add, one, other, *, value=1: torch.add(add, torch.div(torch.mul(one, value), other)),
    "addmm": _addmm,
    "addmv": _addmm,
    "baddbmm": _addmm,
}
"""Operators that scale an operand by a number, written with operators that take tensors."""
