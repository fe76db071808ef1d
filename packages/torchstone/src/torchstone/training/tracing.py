"""The modes under which a step is traced: they put numbers and state of the trace in place of the real ones.

The arguments of a step are fake tensors in its trace. Tensors that the step makes without them are real:
``torch.arange(3)`` has its values, and code may look at them. The results of ``torch.rand(3)``, and of
``torch.zeros(3)`` after an argument was written into it, are real too, but their values are not those of any
step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from operator import ge, gt, le, lt
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..compiler.operators.changing_numbers import with_tensors
from ..compiler.operators.lists import calls_of_single_tensors
from ..errors import CaptureError
from ..torch_internals import pytree
from ..torch_internals.dispatch import TorchDispatchMode, without_modes
from ..torch_internals.fake import DynamicOutputShapeException, FakeTensor
from ..torch_internals.operators import HigherOrderOperator, OpOverload, namespace, schema_of
from ..torch_internals.tensors import storage_identity
from .numbers import Expression, Guards, Number, number
from .origins import Origins
from .randomness import refuse_generator
from .refusals import HigherOrder, LooksAtValue, SizedByValues
from .writes import Writes, written

aten = namespace("aten")

_SET_DATA = torch.Tensor.data.__set__  # type: ignore[attr-defined]
_MAKERS = (torch.tensor, torch.as_tensor, torch.scalar_tensor)
_READERS = (torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)
_CONVERSIONS = frozenset(
    getattr(torch.Tensor, f"__{name}__") for name in ("bool", "int", "float", "complex", "index", "contains")
) | {torch.Tensor.item, torch.Tensor.new_tensor, torch.asarray, *_MAKERS, *_READERS}
"""Functions that may read values without calling an operator."""
_SELECTIONS = (
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
)
_FRESH = (aten.lift_fresh.default, aten.lift_fresh_copy.default)
_FRACTIONS = (aten.rand.default, aten.rand.generator)
_COMPARISONS = {
    aten.lt.Scalar: lt,
    aten.le.Scalar: le,
    aten.gt.Scalar: gt,
    aten.ge.Scalar: ge,
}
_LARGEST_FRACTION = 1 - 2**-53


class Substitution(TorchFunctionMode):
    """Puts the tensors of the trace in place of the model's own, wherever code uses the latter.

    ``traced`` has them by the identity of the real ones. ``numbers`` knows which other tensors have
    constant values, for functions that read values without calling an operator.
    """

    def __init__(self, traced: Mapping[int, torch.Tensor], numbers: Numbers | None = None) -> None:
        super().__init__()
        self._traced, self._numbers = traced, numbers

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _MAKERS and args and isinstance(args[0], torch.SymFloat):
            options = {name: value for name, value in (kwargs or {}).items() if name in ("dtype", "device")}
            return torch.full((), args[0], **options)  # type: ignore[call-overload]
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._own, (args, kwargs or {}))
        if function == _SET_DATA:  # the trace would not see it; which memory a tensor has makes no difference
            return _write(*args)
        if function in _READERS and self._numbers is not None and not isinstance(args[0], FakeTensor):
            self._numbers.look(args[0])
        if function in _CONVERSIONS and self._numbers is not None:
            self._numbers.origins.look(pytree.tree_leaves(args))
        result = function(*args, **kwargs)
        return Number(result.node) if type(result) is torch.SymFloat else result  # what item() made

    def _own(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._traced.get(id(tensor), tensor)


def _write(tensor: torch.Tensor, data: torch.Tensor) -> None:
    """Write ``data`` into the tensor, instead of running ``tensor.data = data``."""
    if tensor.shape != data.shape or tensor.dtype != data.dtype:
        raise CaptureError(
            f"the step gives a tensor {tensor.dtype}{list(tensor.shape)} the data of one "
            f"{data.dtype}{list(data.shape)}",
            hint="change shapes and dtypes between steps, as model.to(...) does",
        )
    with torch.no_grad():
        tensor.detach().copy_(data)


def like(leaf: torch.Tensor, traced: torch.Tensor) -> torch.Tensor:
    """Return ``traced``, requiring a gradient if ``leaf`` does, for losses that compute with a gradient."""
    return traced.detach().requires_grad_() if leaf.requires_grad else traced


class Numbers(TorchDispatchMode):
    """Gives operators tensors in place of numbers, and makes ``item()`` of a float return a :class:`Number`.

    What is known of a 0-d tensor before the step runs (a step counter, and what is computed from it)
    is kept beside it, so that code can branch on it.
    """

    supports_higher_order_operators = True

    def __init__(
        self, guards: Guards, made: dict[int, torch.Tensor] | None = None, origins: Origins | None = None
    ) -> None:
        super().__init__()
        self._guards = guards
        self.origins = Origins() if origins is None else origins
        self._made = {} if made is None else made
        """Constants that were computed outside of the graph, by identity."""
        self._known: dict[int, tuple[Any, Expression | None]] = {}
        self.writes = Writes()
        """What the trace has written into real tensors: the program does it when it runs."""
        self._fractions: dict[int, Any] = {}
        """Storages of random numbers from 0 (included) to 1 (excluded)."""

    def know(self, tensor: torch.Tensor, expression: Expression | None) -> None:
        """Note what is known of a tensor; None means that nothing is, even if the tensor is real."""
        storage = tensor.untyped_storage()
        self._known[storage_identity(storage)] = storage, expression  # the storage keeps its identity
        self._fractions.pop(storage_identity(storage), None)

    def has(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is real, with the values that it has in every step."""
        if isinstance(tensor, FakeTensor):
            return False
        if tensor.layout is not torch.strided:
            return True
        return storage_identity(tensor.untyped_storage()) not in self._known

    def varies(self, tensor: torch.Tensor) -> bool:
        """Whether ``tensor`` is a real one that the trace made, with other values in each step."""
        return self.origins.made_here(tensor) and not self.has(tensor)

    def look(self, tensor: torch.Tensor) -> None:
        """Raise :class:`LooksAtValue` if the values of ``tensor`` are not constants."""
        if not self.has(tensor):
            raise LooksAtValue

    def _expression(self, value: Any) -> Any:
        """Return what is known of an argument, or None if nothing is."""
        if isinstance(value, torch.Tensor):
            if value.dim() > 0:
                return None
            found = self._known.get(storage_identity(value.untyped_storage()))
            if found is None and not isinstance(value, FakeTensor):  # a constant
                with without_modes():
                    return value.detach().clone()
            return None if found is None else found[1]
        return value.node.expression if isinstance(value, torch.SymFloat) else value

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(operator, HigherOrderOperator):
            raise HigherOrder(operator)
        if operator is aten._local_scalar_dense.default:
            return self._item(args[0])
        calls = calls_of_single_tensors(operator, args, kwargs)
        if calls is not None:
            made = [self.__torch_dispatch__(single, types, *one) for single, *one in calls]
            return None if schema_of(operator).is_mutable else made
        if operator in _SELECTIONS:
            args = self._without_masks(*args)
        expression = self._followed(operator, args, kwargs) if isinstance(operator, OpOverload) else None
        leaves = pytree.tree_leaves((args, kwargs))
        refuse_generator(leaves)
        constant = self._is_constant(operator, leaves)
        if any(isinstance(leaf, torch.SymFloat) for leaf in leaves):
            result = with_tensors(operator, args, kwargs, _tensor)
            constant &= result is NotImplemented
        else:
            result = NotImplemented
        if result is NotImplemented:  # numbers' values become part of the program
            args, kwargs = pytree.tree_map_only(torch.SymFloat, float, (args, dict(kwargs)))
            self.writes.save(written(operator, args))
            result = self._call(operator, args, kwargs, constant)
        self._note(operator, args, result, constant)
        self._note_origins(operator, args, leaves, result)
        if expression is not None and not constant and isinstance(result, torch.Tensor) and not result.dim():
            self.know(result, expression)
            if schema_of(operator).is_mutable and _is_alone(args[0]):  # if it is real, the result is another
                self.know(args[0], expression)
        return result

    def _call(self, operator: Any, args: Any, kwargs: Any, constant: bool) -> Any:
        """Return the result of an operator.

        A ``constant`` call may read values and have a size that depends on them: it runs on real tensors.
        """
        if isinstance(operator, OpOverload):
            looks = torch.Tag.data_dependent_output in operator.tags
            if constant and (looks or _is_sized_by_values(operator, args)):
                self.origins.look(pytree.tree_leaves((args, kwargs)))
                with without_modes():
                    return self._keep(operator(*args, **kwargs))
            if looks:
                raise LooksAtValue
            fake = any(isinstance(leaf, FakeTensor) for leaf in pytree.tree_leaves((args, kwargs)))
            if not fake and _is_sized_by_values(operator, args):
                raise SizedByValues(operator)  # for fake tensors, the fake mode decides this
        try:
            return operator(*args, **kwargs)
        except DynamicOutputShapeException.get() as error:
            raise SizedByValues(operator if isinstance(operator, OpOverload) else error.func) from error

    def _keep(self, result: Any) -> Any:
        """Note that the tensors in ``result`` are made by the step, outside of its graph."""
        self._made.update(
            (id(one), one) for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)
        )
        return result

    def _is_constant(self, operator: Any, leaves: Sequence[Any]) -> bool:
        """Whether the results of a call are the same in every step, apart from numbers that change."""
        if isinstance(operator, OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags:
            return False
        return all(self.has(leaf) for leaf in leaves if isinstance(leaf, torch.Tensor))

    def _note(self, operator: Any, args: Sequence[Any], result: Any, constant: bool) -> None:
        """Note that the tensors which a call wrote or made have unknown values, unless it is ``constant``."""
        for tensor in written(operator, args):
            if constant:
                self._known.pop(storage_identity(tensor.untyped_storage()), None)
            else:
                self.know(tensor, None)
        for tensor in () if constant else pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and self.has(tensor) and tensor.layout is torch.strided:
                self.know(tensor, None)
        if operator in _FRACTIONS:
            storage = result.untyped_storage()
            self._fractions[storage_identity(storage)] = storage

    def _without_masks(self, tensor: Any, indices: Sequence[Any], *rest: Any) -> tuple[Any, ...]:
        """Return the arguments of an indexing operator, with positions in place of constant masks."""
        if rest and rest[0].numel() == 1:  # positions are not needed if all elements get the same value
            return tensor, indices, *rest
        found: list[Any] = []
        for index in indices:
            if isinstance(index, torch.Tensor) and index.dtype == torch.bool and self.has(index):
                self.origins.look([index])
                with without_modes():
                    found += self._keep(index.nonzero().unbind(1))
            else:
                found.append(index)
        return tensor, found, *rest

    def _note_origins(self, operator: Any, args: Sequence[Any], leaves: Sequence[Any], result: Any) -> None:
        """Note what the values of the tensors come from that a call made or wrote."""
        given = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        if operator in _FRESH:  # made of Python numbers; what it was made of before has been looked at
            self.origins.made(given, [])
        before = {storage_identity(one.untyped_storage()) for one in given if one.layout is torch.strided}
        made = [one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor)]
        new = [
            one
            for one in made
            if one.layout is torch.strided and storage_identity(one.untyped_storage()) not in before
        ]
        self.origins.made([*new, *written(operator, args)], given)

    def _item(self, tensor: torch.Tensor) -> Any:
        self.origins.look([tensor])
        known = self._guards.call(torch.Tensor.item, self._expression(tensor))
        if not tensor.dtype.is_floating_point:
            return self._guards.see(known)
        return number(tensor.to(torch.float64), known, self._guards)

    def _followed(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Expression | None:
        """Return what is known of the 0-d result of an operator on constants and known 0-d tensors."""
        if any(isinstance(one, (list, tuple, torch.Tensor, torch.SymFloat)) for one in kwargs.values()):
            return None
        if any(isinstance(one, (list, tuple)) and len(one) for one in args):
            return None  # it has dimensions, as a rule
        if torch.Tag.nondeterministic_seeded in operator.tags:
            return None
        if operator in _COMPARISONS:
            decided = self._decided(_COMPARISONS[operator], *args)
            if decided is not None:
                return self._guards.call(torch.tensor, decided)
        known = [self._expression(one) for one in args]
        return self._guards.call(_on_copy(operator, tuple(kwargs.items())), *known)

    def _decided(self, compare: Callable[[float, float], bool], tensor: torch.Tensor, bound: Any) -> Any:
        """Return the result of comparing a random number with ``bound`` if it is always the same, else None.

        Models that can skip layers at random compute ``torch.rand([]) < 0.0`` if they should skip none.
        """
        if isinstance(bound, torch.SymFloat) or isinstance(tensor, FakeTensor):
            return None
        if storage_identity(tensor.untyped_storage()) not in self._fractions:
            return None
        smallest, largest = compare(0.0, bound), compare(_LARGEST_FRACTION, bound)
        return smallest if smallest == largest else None


def _is_alone(tensor: torch.Tensor) -> bool:
    """Whether a 0-d tensor fills its storage, and is not a view of a larger tensor."""
    return tensor.untyped_storage().nbytes() == tensor.element_size()


def _is_sized_by_values(operator: OpOverload, args: Sequence[Any]) -> bool:
    """Whether the size of the result depends on values, for a call on real tensors."""
    if torch.Tag.dynamic_output_shape not in operator.tags:
        return False
    return operator is not aten.index.Tensor or any(
        index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
    )


@cache
def _on_copy(operator: Any, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """Return ``operator`` with ``options``; if it writes into its first argument, it gets a copy of it."""
    if not schema_of(operator).is_mutable:
        return partial(operator, **dict(options))

    def call(first: torch.Tensor, *rest: Any) -> Any:
        return operator(first.clone(), *rest, **dict(options))

    return call


def _tensor(value: torch.SymFloat, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    node: Any = value.node
    tensor: torch.Tensor = node.tensor
    return tensor.to(dtype)
