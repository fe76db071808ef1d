"""Python numbers that are arguments of a program: learning rates, momenta, step counters.

While a step is traced, each number of an optimizer is a :class:`Number`. Code that computes with it
computes in the program, in double precision as Python would. Code that looks at its value
(``if momentum != 0``) sees the value of this call, and what it saw is kept in the program's
:class:`Guards`: where a later call would see something else, another program is made.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..torch_internals.dispatch import without_function_modes, without_modes
from .refusals import LooksAtValue


class Expression:
    """How a value is computed from what is known before a step runs.

    ``value`` is its value in the call that is traced. A leaf has no function: its only argument is its
    key in the ``leaves`` that :meth:`of` takes.
    """

    __slots__ = ("arguments", "function", "value")

    def __init__(self, function: Callable[..., Any] | None, arguments: Sequence[Any], value: Any) -> None:
        self.function, self.arguments, self.value = function, tuple(arguments), value

    def of(self, leaves: Mapping[Any, Any], memo: dict[int, Any]) -> Any:
        """Return the value computed from ``leaves``. ``memo`` keeps what was already computed from them."""
        if self.function is None:
            return leaves[self.arguments[0]]
        if id(self) not in memo:
            memo[id(self)] = self.function(
                *(one.of(leaves, memo) if isinstance(one, Expression) else one for one in self.arguments)
            )
        return memo[id(self)]


class Guards:
    """The values of numbers that the code of a step read while it was traced, as expressions."""

    def __init__(self) -> None:
        self._made: dict[Any, Expression] = {}
        self._seen: dict[int, Expression] = {}

    def leaf(self, place: Any, value: Any) -> Expression:
        return self._made.setdefault((None, place), Expression(None, (place,), value))

    def call(self, function: Callable[..., Any], *arguments: Any) -> Expression | None:
        """Return the expression for ``function`` of ``arguments``; None if one of them is None (unknown)."""
        if any(argument is None for argument in arguments):
            return None
        key = (function, *map(_identity, arguments))
        if key not in self._made:
            values = [one.value if isinstance(one, Expression) else one for one in arguments]
            with without_modes(), without_function_modes(), torch.no_grad():
                self._made[key] = Expression(function, arguments, function(*values))
        return self._made[key]

    def see(self, expression: Expression | None) -> Any:
        """Return the value of ``expression``, on which the program depends from now on.

        Raises :class:`LooksAtValue` if ``expression`` is None.
        """
        if expression is None:
            raise LooksAtValue
        self._seen[id(expression)] = expression
        return expression.value

    def hold(self, leaves: Mapping[Any, Any]) -> bool:
        """Whether the code would see the same values with other ``leaves``."""
        memo: dict[int, Any] = {}
        return all(_same(one.of(leaves, memo), one.value) for one in self._seen.values())

    def seen_leaves(self) -> set[Any]:
        """Return the places of the leaves from which the values that the code saw are computed."""
        found: set[Any] = set()
        pending, known = list(self._seen.values()), set[int]()
        while pending:
            one = pending.pop()
            if id(one) in known:
                continue
            known.add(id(one))
            if one.function is None:
                found.add(one.arguments[0])
            else:
                pending += [argument for argument in one.arguments if isinstance(argument, Expression)]
        return found

    def broken(self, leaves: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
        """Return the values that other ``leaves`` would change: pairs of the one seen and the new one."""
        memo: dict[int, Any] = {}
        pairs = [(one.value, one.of(leaves, memo)) for one in self._seen.values()]
        return [(before, now) for before, now in pairs if not _same(now, before)]


def _identity(argument: Any) -> Any:
    """Return a key that identifies an argument of an expression: 0.0 and -0.0 differ, as do 1 and True."""
    plain = isinstance(argument, (bool, int, float))
    return (type(argument), repr(argument)) if plain else id(argument)


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) or (one != one and other != other)


class Node:
    """The ``node`` of a symbolic number, with the methods that PyTorch's own code calls."""

    def __init__(self, tensor: torch.Tensor, expression: Expression | None, guards: Guards) -> None:
        self.tensor = tensor
        self.expression = expression
        self.guards = guards

    def guard_float(self, file: str, line: int) -> float:
        return float(self.guards.see(self.expression))

    def is_float(self) -> bool:
        return True

    def is_int(self) -> bool:
        return False

    is_bool = is_constant = is_nested_int = is_int
    is_symbolic = has_hint = is_float

    def maybe_as_float(self) -> None:
        return None

    maybe_as_int = maybe_as_bool = maybe_as_float

    def __str__(self) -> str:
        return "number" if self.expression is None else str(self.expression.value)

    def __getattr__(self, name: str) -> Any:  # PyTorch's ways to print a symbolic number
        if name in ("_graph_repr", "str"):
            return self.__str__
        raise AttributeError(name)


class Number(torch.SymFloat):
    """A number whose value is known when the program runs; made by :func:`number`."""

    node: Node

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the number that it stands for, so that ``isinstance`` answers as in eager PyTorch."""
        known = self.node.expression
        return float if known is None else type(known.value)

    @property
    def real(self) -> Number:
        return self

    def __hash__(self) -> int:
        return hash(self.node.guards.see(self.node.expression))

    def __repr__(self) -> str:
        return repr(self.node.guards.see(self.node.expression))

    __str__ = __repr__

    def __format__(self, form: str) -> str:
        return format(self.node.guards.see(self.node.expression), form)

    def __bool__(self) -> bool:
        return bool(_seen(self, bool))

    def __float__(self) -> float:
        return self.node.guard_float("", 0)

    def __int__(self) -> int:
        return int(_seen(self, int))

    def __neg__(self) -> Number:
        return _computed(self, operator.neg, torch.neg, self)

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return _computed(self, operator.abs, torch.abs, self)


def _seen(owner: Number, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return ``function`` of a number's value. The program depends on the result from now on."""
    guards = owner.node.guards
    return guards.see(guards.call(function, owner.node.expression, *arguments))


def number(tensor: torch.Tensor, expression: Expression | None, guards: Guards) -> Number:
    """Return a 0-d float64 ``tensor`` of the trace as a number."""
    return Number(Node(tensor, expression, guards))


def _computed(
    owner: Number, function: Callable[..., Any], traced: Callable[..., Any], *operands: Any
) -> Number:
    """Return ``function`` of numbers, which may be Python's; ``traced`` is the same function for tensors."""
    tensors = [one.node.tensor if isinstance(one, Number) else one for one in operands]
    known = [one.node.expression if isinstance(one, Number) else one for one in operands]
    guards = owner.node.guards
    return number(traced(*tensors), guards.call(function, *known), guards)


def _binary(
    function: Callable[..., Any], traced: Callable[..., Any]
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    def method(self: Number, other: Any) -> Any:
        if not isinstance(other, (int, float, Number)):
            return NotImplemented
        return _computed(self, function, traced, self, other)

    def reflected(self: Number, other: Any) -> Any:
        if not isinstance(other, (int, float)):
            return NotImplemented
        return _computed(self, function, traced, other, self)

    return method, reflected


def _comparison(function: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Number, other: Any) -> Any:
        if not isinstance(other, (int, float, Number)):
            return NotImplemented
        known = other.node.expression if isinstance(other, Number) else other
        return _seen(self, function, known)

    return method


def _asked(name: str) -> Callable[..., Any]:
    """Return a method that calls ``name`` of the Python number; the result becomes part of the program."""

    def function(value: Any, *arguments: Any) -> Any:
        return getattr(value, name)(*arguments)

    def method(self: Number, *arguments: Any) -> Any:
        known = [one.node.expression if isinstance(one, Number) else one for one in arguments]
        return _seen(self, function, *known)

    return method


def _full(value: Any, like: torch.Tensor) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.full_like(like, value)


def _of_two(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Wrap a function of two tensors so that one of them may be a Python number."""

    def traced(one: Any, other: Any) -> torch.Tensor:
        like = one if isinstance(one, torch.Tensor) else other
        return function(_full(one, like), _full(other, like))

    return traced


_ARITHMETIC: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "add": (operator.add, torch.add),
    "sub": (operator.sub, _of_two(torch.sub)),
    "mul": (operator.mul, torch.mul),
    "truediv": (operator.truediv, _of_two(torch.div)),
    "floordiv": (operator.floordiv, _of_two(torch.floor_divide)),
    "mod": (operator.mod, _of_two(torch.remainder)),
    "pow": (operator.pow, _of_two(torch.pow)),
}
for _name, _functions in _ARITHMETIC.items():
    _method, _reflected = _binary(*_functions)
    setattr(Number, f"__{_name}__", _method)
    setattr(Number, f"__r{_name}__", _reflected)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _comparison(getattr(operator, _name)))
for _name in ("__ceil__", "__divmod__", "__floor__", "__rdivmod__", "__round__", "__trunc__"):
    setattr(Number, _name, _asked(_name))
for _name in ("as_integer_ratio", "hex", "is_integer"):
    setattr(Number, _name, _asked(_name))


def _chosen(function: Callable[..., Any], traced: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Return ``min`` or ``max`` that computes in the program if an argument is a :class:`Number`."""

    def choose(*arguments: Any, **options: Any) -> Any:
        owner = next((one for one in arguments if isinstance(one, Number)), None)
        if owner is None or options:
            return function(*arguments, **options)
        chosen = arguments[0]
        for other in arguments[1:]:
            numbers = isinstance(chosen, Number) or isinstance(other, Number)
            chosen = (
                _computed(owner, function, _of_two(traced), chosen, other)
                if numbers
                else function(chosen, other)
            )
        return chosen

    return choose


class _Math:
    """A stand-in for the module ``math`` whose functions of one argument compute in the program."""

    def __getattr__(self, name: str) -> Any:
        theirs, traced = getattr(math, name), getattr(torch, name, None)
        if not callable(theirs) or traced is None:
            return theirs

        def function(*arguments: Any) -> Any:
            if len(arguments) == 1 and isinstance(arguments[0], Number):
                return _computed(arguments[0], theirs, traced, arguments[0])
            return theirs(*arguments)

        return function


STAND_INS: Mapping[str, Any] = {
    "max": _chosen(max, torch.maximum),
    "min": _chosen(min, torch.minimum),
    "math": _Math(),
}
"""Stand-ins, in the modules of optimizers, for the names that would read the values of numbers."""
