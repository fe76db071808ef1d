"""The modes under which a step is traced: numbers and state of the trace in place of the real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..compiler.operators.changing_numbers import with_tensors
from ..compiler.operators.lists import calls_of_single_tensors
from ..errors import CaptureError
from ..torch_internals import pytree
from ..torch_internals.dispatch import TorchDispatchMode, without_modes
from ..torch_internals.fake import FakeTensor
from ..torch_internals.operators import OpOverload, namespace, schema_of
from ..torch_internals.tensors import storage_identity
from .numbers import Expression, Guards, Number, number

aten = namespace("aten")

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
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
        if function == _SET_DATA:  # the trace would not see it; memory is of no account in a step
            return _write(*args)
        result = function(*args, **kwargs)
        return Number(result.node) if type(result) is torch.SymFloat else result  # what item() made

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._traced.get(id(tensor), tensor)


def _write(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """``tensor.data = data`` as a write into the tensor."""
    if tensor.shape != data.shape or tensor.dtype != data.dtype:
        raise CaptureError(
            f"the step gives a tensor {tensor.dtype}{list(tensor.shape)} the data of one "
            f"{data.dtype}{list(data.shape)}",
            hint="change shapes and dtypes between steps, as model.to(...) does",
        )
    with torch.no_grad():
        tensor.detach().copy_(data)


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
        calls = calls_of_single_tensors(operator, args, kwargs)
        if calls is not None:
            made = [self.__torch_dispatch__(single, types, *one) for single, *one in calls]
            return None if schema_of(operator).is_mutable else made
        expression = self._followed(operator, args, kwargs) if isinstance(operator, OpOverload) else None
        leaves = pytree.tree_leaves((args, kwargs))
        if any(isinstance(leaf, torch.SymFloat) for leaf in leaves):
            result = with_tensors(operator, args, kwargs, _tensor)
        else:
            result = NotImplemented
        if result is NotImplemented:  # numbers' values become part of the program
            args, kwargs = pytree.tree_map_only(torch.SymFloat, float, (args, dict(kwargs)))
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
def _on_copy(operator: Any, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """``operator`` with ``options``, leaving its first argument alone."""
    if not schema_of(operator).is_mutable:
        return partial(operator, **dict(options))

    def call(first: torch.Tensor, *rest: Any) -> Any:
        return operator(first.clone(), *rest, **dict(options))

    return call


def _tensor(value: torch.SymFloat, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    node: Any = value.node
    tensor: torch.Tensor = node.tensor
    return tensor.to(dtype)
