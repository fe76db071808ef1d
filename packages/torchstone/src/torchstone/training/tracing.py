"""The modes under which a step is traced: numbers and state of the trace in place of the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..torch_internals import pytree
from ..torch_internals.dispatch import TorchDispatchMode, without_modes
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import OpOverload, namespace, overload_name, overloads_of, schema_of
from ..torch_internals.tensors import storage_identity
from .numbers import Expression, Guards, Number, number

aten = namespace("aten")

_MAKERS = (torch.tensor, torch.as_tensor, torch.scalar_tensor)


class Substitution(TorchFunctionMode):
    """Puts the tensors of the trace in place of the model's own, wherever code uses these.

    ``traced`` has them by the identity of the real ones.
    """

    def __init__(self, traced: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self._traced = traced

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _MAKERS and args and isinstance(args[0], torch.SymFloat):
            options = {name: value for name, value in (kwargs or {}).items() if name in ("dtype", "device")}
            return torch.full((), args[0], **options)  # type: ignore[call-overload]
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._own, (args, kwargs or {}))
        result = function(*args, **kwargs)
        return Number(result.node) if type(result) is torch.SymFloat else result  # what item() made

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._traced.get(id(tensor), tensor)


class Numbers(TorchDispatchMode):
    """Gives operators tensors for numbers, and numbers for what ``item()`` reads.

    What is known of a 0-d tensor before the step runs (a step counter, and what follows from it)
    is kept beside it, so that code can branch on it.
    """

    def __init__(self, guards: Guards) -> None:
        super().__init__()
        self._guards = guards
        self._known: dict[int, tuple[Any, Expression | None]] = {}

    def know(self, tensor: torch.Tensor, expression: Expression | None) -> None:
        """Note what is known of a tensor; None for nothing, not even of a constant that was written."""
        storage = tensor.untyped_storage()
        self._known[storage_identity(storage)] = storage, expression  # the storage keeps its identity

    def _expression(self, value: Any) -> Any:
        """What is known of an argument; None for nothing."""
        if isinstance(value, torch.Tensor):
            if value.dim() > 0:
                return None
            found = self._known.get(storage_identity(value.untyped_storage()))
            if found is None and not isinstance(value, FakeTensor):  # a constant that nothing has written
                with without_modes():
                    return value.detach().clone()
            return None if found is None else found[1]
        return value.node.expression if isinstance(value, torch.SymFloat) else value

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if operator is aten._local_scalar_dense.default:
            return self._item(args[0])
        single = _of_one_tensor(operator)
        if single is not None:
            lists = [one for one in args if isinstance(one, (list, tuple))]
            each = [
                [one[i] if isinstance(one, (list, tuple)) else one for one in args]
                for i in range(len(lists[0]))
            ]
            made = [self.__torch_dispatch__(single, types, tuple(one), kwargs) for one in each]
            return None if schema_of(operator).is_mutable else made
        expression = self._followed(operator, args, kwargs) if isinstance(operator, OpOverload) else None
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, torch.SymFloat) for leaf in leaves):
            result = with_numbers(operator, args, kwargs)
        else:
            result = operator(*args, **kwargs)
        if isinstance(operator, OpOverload) and schema_of(operator).is_mutable and leaves:
            self._forget(operator, args)
        if expression is not None and isinstance(result, torch.Tensor) and result.dim() == 0:
            self.know(result, expression)
        return result

    def _item(self, tensor: torch.Tensor) -> Any:
        known = self._guards.call(torch.Tensor.item, self._expression(tensor))
        if not tensor.dtype.is_floating_point:
            return self._guards.see(known)
        return number(tensor.to(torch.float64), known, self._guards)

    def _followed(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Expression | None:
        """What is known of the 0-d result of an operator on constants and 0-d tensors that are known."""
        if any(isinstance(one, (list, tuple, torch.Tensor, torch.SymFloat)) for one in kwargs.values()):
            return None
        if any(isinstance(one, (list, tuple)) and len(one) for one in args):
            return None  # it has dimensions, as a rule
        if torch.Tag.nondeterministic_seeded in operator.tags:
            return None
        known = [self._expression(one) for one in args]
        return self._guards.call(_on_copy(operator, tuple(kwargs.items())), *known)

    def _forget(self, operator: Any, args: Sequence[Any]) -> None:
        written = [
            value
            for argument, value in zip(schema_of(operator).arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        for tensor in pytree.tree_leaves(written):
            if isinstance(tensor, torch.Tensor):
                self.know(tensor, None)


@cache
def _of_one_tensor(operator: Any) -> Any:
    """``aten.lerp_.Scalar`` for ``aten._foreach_lerp_.Scalar``; None where there is none."""
    prefix, _, name = schema_of(operator).name.partition("_foreach_") if _is_aten(operator) else ("", "", "")
    wanted = (
        ""
        if not name
        else {"List": "Tensor", "ScalarList": "Scalar"}.get(overload_name(operator), overload_name(operator))
    )
    found = overloads_of(prefix + name) if name else []
    return next((one for one in found if overload_name(one) == wanted), None)


def _is_aten(operator: Any) -> bool:
    return isinstance(operator, OpOverload) and operator.namespace == "aten"


@cache
def _on_copy(operator: Any, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """``operator`` with ``options``, leaving its first argument alone."""
    if not schema_of(operator).is_mutable:
        return partial(operator, **dict(options))

    def call(first: torch.Tensor, *rest: Any) -> Any:
        return operator(first.clone(), *rest, **dict(options))

    return call


def with_numbers(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A call of ``operator`` with numbers among its arguments, by operators that take tensors in their place.

    Half precision computes in single precision and rounds once, as PyTorch's kernels do with numbers.
    Where no such operator is known the numbers' values become part of the program.
    """
    name = schema_of(operator).name.removeprefix("aten::")
    base = name.removesuffix("_") if schema_of(operator).is_mutable else name
    if base == "full":
        dtype = kwargs.get("dtype") or torch.get_default_dtype()
        return _tensor(args[1], dtype).expand(args[0]).clone()
    rule = _RULES.get(base)
    counterpart = None if rule is not None else _counterpart(operator, _places(args), _names(kwargs))
    if rule is None and counterpart is None:
        fixed = pytree.tree_map_only(torch.SymFloat, float, (args, dict(kwargs)))
        return operator(*fixed[0], **fixed[1])
    tensors = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    dtype = torch.result_type(_widest(tensors), 1.0)
    wide = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

    def converted(value: Any) -> Any:
        if isinstance(value, torch.SymFloat):
            return _tensor(value, wide)
        if isinstance(value, torch.Tensor) and value.dtype == dtype and wide != dtype:
            return value.to(wide)
        return value

    new_args, new_kwargs = pytree.tree_map(converted, (list(args), dict(kwargs)))
    if rule is not None:
        result = rule(*new_args, **new_kwargs)
    else:
        assert counterpart is not None
        overload, numeric = counterpart
        like = next(one for one in pytree.tree_leaves(new_args) if isinstance(one, torch.Tensor))
        for place in numeric:
            if place < len(new_args) and isinstance(new_args[place], (int, float)):
                new_args[place] = torch.full((), new_args[place], dtype=wide, device=like.device)
        result = overload(*new_args, **new_kwargs)
    if isinstance(result, torch.Tensor) and result.dtype == wide != dtype:
        result = result.to(dtype)
    if schema_of(operator).is_mutable:
        return args[0].copy_(result)
    return result


def _tensor(value: torch.SymFloat, dtype: torch.dtype) -> torch.Tensor:
    node: Any = value.node
    tensor: torch.Tensor = node.tensor
    return tensor.to(dtype)


def _widest(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The tensor that decides the dtype of a result: one with dimensions, if there is one."""
    return max(tensors, key=lambda one: (one.dim() > 0, one.dtype.is_floating_point, one.dtype.itemsize))


def _places(args: Sequence[Any]) -> tuple[int, ...]:
    return tuple(place for place, one in enumerate(args) if isinstance(one, torch.SymFloat))


def _names(kwargs: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(name for name, one in kwargs.items() if isinstance(one, torch.SymFloat))


@cache
def _counterpart(operator: Any, places: tuple[int, ...], names: tuple[str, ...]) -> Any:
    """The functional overload of ``operator`` with tensors at ``places``, and where else it has them."""
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
"""Operators that scale an operand by a number, in terms of those that take tensors."""
