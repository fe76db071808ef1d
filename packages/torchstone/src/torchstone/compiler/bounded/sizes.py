"""The state of tracing a graph on padded tensors: tensors, sizes that depend on values, and their bounds."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ...signature import MOST_UNKNOWN
from ...torch_internals.operators import HigherOrderOperator, OpOverload
from ...torch_internals.tracing import free_unbacked_symbols
from ..checks import Check
from ..graphs import location_text

Tensor = torch.Tensor


class NoForm(Exception):
    """Raised, with the reason, if an operator cannot be called on padded tensors."""


_MANY = 1 << 40
"""A larger bound is no bound: PyTorch gives ``sys.maxsize`` if it knows none."""


class Trace:
    """The state while a graph is traced again on padded tensors: the values of its nodes and symbols."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        self.ranges = ranges
        """The range that ``torch.export`` gives for each symbol."""
        self.values: dict[Node, Any] = {}
        self.counts: dict[sympy.Symbol, Tensor] = {}
        self.bounds: dict[sympy.Symbol, Any] = {}
        """The largest value of each size that depends on values; None if it is unknown."""
        self.naturals: dict[sympy.Symbol, Any] = {}
        """The bounds that operators guarantee themselves; no entry for numbers that are read from tensors."""
        self.sizes: dict[sympy.Symbol, Any] = {}
        """The sizes of inputs, by their symbols."""
        self.origins: dict[sympy.Symbol, str] = {}
        """The call that each symbol in ``counts`` comes from."""
        self.checks: list[Check] = []
        self.answers: list[Tensor] = []

    def dims(self, node: Any) -> dict[int, sympy.Expr]:
        """Return the dimensions of a node's tensor that have padding, with their true sizes."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        if not isinstance(value, Tensor):
            return {}
        sizes: list[Any] = list(value.shape)
        return {dim: size.node.expr for dim, size in enumerate(sizes) if is_unknown_size(size)}

    def define(self, node: Node, value: Any, count: Tensor, natural: Any = None) -> Any:
        """Define the new symbol in ``value``, a result of ``node``, as ``count``; returns its bound.

        ``natural`` is the bound that the operator itself guarantees.
        """
        found = unknown_in(value)
        new = found - self.counts.keys()
        if not new and len(found) == 1:  # PyTorch uses the same symbol for the same mask
            return self.bounds[found.pop()]
        if len(new) != 1:
            raise NoForm("its sizes depend on values in more than one way")
        (symbol,) = new
        allowed = self.ranges.get(symbol)
        declared = int(allowed.upper) if allowed is not None and allowed.upper.is_Integer else None
        declared = None if declared is None or declared > _MANY else declared
        if natural is not None:
            self.naturals[symbol] = natural
        bound = natural
        if declared is not None and (natural is None or not isinstance(natural, int) or declared < natural):
            bound = declared
        dtype = torch.float64 if isinstance(value, torch.SymFloat) else torch.int64
        self.counts[symbol], self.bounds[symbol] = count.to(dtype), bound
        self.origins[symbol] = _place(node)
        return bound

    def physical(self, size: Any) -> Any:
        """Return how long a padded dimension is, if its size in PyTorch's metadata is ``size``."""
        if not isinstance(size, torch.SymInt):
            return size
        expr = size.node.expr
        unknown = sorted(free_unbacked_symbols(size), key=str)
        if len(unknown) > MOST_UNKNOWN:
            raise NoForm(f"its size depends on {len(unknown)} sizes of values")
        for symbol in unknown:
            if self.bounds.get(symbol) is None:
                raise NoForm(f"nothing says how large {symbol} may become: call torch._check(number <= …)")
            _direction(expr, symbol)
        ends = itertools.product(*((self.bounds[symbol], 0) for symbol in unknown))
        sizes = [evaluated(expr, {**self.sizes, **dict(zip(unknown, end, strict=True))}) for end in ends]
        return functools.reduce(torch.sym_max, sizes)

    def shape(self, value: Tensor) -> list[Any]:
        """Return the shape of the padded tensor for ``value``."""
        return [self.physical(size) for size in value.shape]

    def count(self, expr: sympy.Expr) -> Tensor:
        """Return a size, a number made of sizes, or a condition on sizes, as a 0-d tensor."""
        symbols: dict[sympy.Symbol, Any] = {**self.sizes, **self.counts}
        found = evaluated(expr, symbols)
        dtype = torch.float64 if isinstance(found, float) else torch.int64
        return found if isinstance(found, Tensor) else torch.scalar_tensor(found, dtype=dtype)

    def number(self, given: Any) -> Any:
        """Return a number or size of a call, as a 0-d tensor if it is symbolic."""
        value = given.meta["val"] if isinstance(given, Node) else given
        return self.count(value.node.expr) if isinstance(value, (torch.SymInt, torch.SymFloat)) else value

    def real(self, node: Node, dims: Sequence[int] | None = None) -> Tensor | None:
        """Return a mask, to be broadcast, of the real elements along ``dims`` (all); None if all are real."""
        found: Tensor | None = None
        value = node.meta["val"]
        for dim, expr in self.dims(node).items():
            if dims is not None and dim not in dims:
                continue
            inside = torch.arange(self.physical(value.shape[dim])) < self.count(expr)
            inside = inside.reshape([-1 if at == dim else 1 for at in range(value.ndim)])
            found = inside if found is None else found & inside
        return found

    def filled(self, node: Any, fill: Any, dims: Sequence[int] | None = None) -> Any:
        """Return the tensor of a node with its padding along ``dims`` (default all) set to ``fill``."""
        tensor = self.values[node] if isinstance(node, Node) else node
        inside = self.real(node, dims) if isinstance(node, Node) else None
        return (
            tensor
            if inside is None
            else torch.where(inside, tensor, torch.scalar_tensor(fill, dtype=tensor.dtype))
        )

    def require(self, node: Node, holds: Tensor, says: str) -> None:
        """Add a check to the program that ``holds`` is true; ``says`` describes the condition."""
        what = _place(node)
        check = Check("size_check", f"{what}: {says}")
        if check not in self.checks:  # PyTorch states some conditions twice
            self.checks.append(check)
            self.answers.append(holds.reshape(()))


def _place(node: Node) -> str:
    line = location_text(node)
    return f"{node.target} at {line}" if line else f"{node.target}"


def unknown_in(value: Any) -> set[sympy.Symbol]:
    """Return the symbols of sizes and numbers in a node's value that depend on values."""
    if isinstance(value, (tuple, list)):
        return set().union(*map(unknown_in, value))
    if isinstance(value, Tensor):  # the storage offset of a view does not count
        return set().union(
            *(free_unbacked_symbols(size) for size in value.shape if not isinstance(size, int))
        )
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return set(free_unbacked_symbols(value))
    return set()


def evaluated(expr: Any, symbols: Mapping[Any, Any]) -> Any:
    """Evaluate a SymPy expression of sizes with numbers, symbolic numbers or 0-d tensors for its symbols."""
    if isinstance(expr, (int, bool)) or expr.is_Integer:
        return int(expr)
    if expr.is_Float:
        return float(expr)
    if expr in (sympy.true, sympy.false):
        return bool(expr)
    if expr.is_Symbol:
        if expr not in symbols:
            raise NoForm(f"{expr} is not known")
        return symbols[expr]
    form = _FORMS.get(type(expr).__name__)
    if form is None:
        raise NoForm(f"its size is {expr}")
    return form([evaluated(one, symbols) for one in expr.args])


def _direction(expr: Any, symbol: Any) -> int:
    """Return whether ``expr`` grows with ``symbol`` (1), shrinks (-1), or does not depend on it (0).

    Raises :class:`NoForm` if it may do both, since its largest value need not be at an end of the symbol's
    range then.
    """
    if symbol not in expr.free_symbols:
        return 0
    if expr.is_Symbol:
        return 1
    form, sign = type(expr).__name__, 1
    parts = [one for one in expr.args if symbol in one.free_symbols]
    others = [one for one in expr.args if symbol not in one.free_symbols]
    if form == "Mul" and all(one.is_Integer or one.is_Symbol for one in others):
        sign = math.prod(-1 if one.is_Integer and one < 0 else 1 for one in others)
    elif form in ("FloorDiv", "CleanDiv", "Pow", "PowByNatural"):
        parts = parts if parts == [expr.args[0]] and all(one.is_nonnegative for one in others) else []
    elif form == "Add":
        parts = _without_choices(expr, parts)
    elif form not in ("Max", "Min"):
        parts = []
    directions = {sign * _direction(one, symbol) for one in parts} - ({0} if form == "Add" else set())
    if len(directions) > 1 or not parts:
        raise NoForm(f"its size is {expr}")
    return directions.pop() if directions else 0


def _without_choices(total: Any, terms: list[Any]) -> list[Any]:
    """Return the terms of a sum; if one is ``Max`` or ``Min``, the sums for each of its choices instead."""
    for term in terms:
        sign, choice = (-1, -term) if type(-term).__name__ in ("Max", "Min") else (1, term)
        if type(choice).__name__ in ("Max", "Min"):
            return [total - term + sign * one for one in choice.args]
    return terms


def _pick(least: bool, values: Sequence[Any]) -> Any:
    found = values[0]
    for one in values[1:]:
        if isinstance(found, Tensor) or isinstance(one, Tensor):
            both = [
                x if isinstance(x, Tensor) else torch.scalar_tensor(x, dtype=torch.int64)
                for x in (found, one)
            ]
            found = torch.minimum(*both) if least else torch.maximum(*both)
        else:
            found = torch.sym_min(found, one) if least else torch.sym_max(found, one)
    return found


def _real(value: Any) -> Any:
    """Return a number as a 64-bit float, like Python's."""
    return value.to(torch.float64) if isinstance(value, Tensor) else torch.sym_float(value)


_FORMS: Mapping[str, Any] = {
    "Add": sum,
    "Mul": math.prod,
    "Pow": lambda values: values[0] ** values[1],
    "PowByNatural": lambda values: values[0] ** values[1],
    "FloatPow": lambda values: values[0] ** values[1],
    "Max": lambda values: _pick(False, values),
    "Min": lambda values: _pick(True, values),
    "FloorDiv": lambda values: values[0] // values[1],
    "CleanDiv": lambda values: values[0] // values[1],
    "Mod": lambda values: values[0] % values[1],
    "PythonMod": lambda values: values[0] % values[1],
    "Equality": lambda values: values[0] == values[1],
    "Unequality": lambda values: values[0] != values[1],
    "LessThan": lambda values: values[0] <= values[1],
    "StrictLessThan": lambda values: values[0] < values[1],
    "GreaterThan": lambda values: values[0] >= values[1],
    "StrictGreaterThan": lambda values: values[0] > values[1],
    "And": lambda values: functools.reduce(operator.and_, values),
    "Or": lambda values: functools.reduce(operator.or_, values),
    "Not": lambda values: ~values[0],
    "ToFloat": lambda values: _real(values[0]),
    "IntTrueDiv": lambda values: _real(values[0]) / _real(values[1]),
    "FloatTrueDiv": lambda values: values[0] / values[1],
}


def given_values(trace: Trace, given: Any) -> Any:
    """Return arguments with nodes replaced by padded tensors, and by numbers computed from input sizes."""

    def value_of(node: Node) -> Any:
        if node in trace.values:
            return trace.values[node]
        number = node.meta.get("val")
        if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return evaluated(number.node.expr, trace.sizes)
        return number

    return map_arg(given, value_of)


def is_unknown_size(size: Any) -> bool:
    """Whether a size depends on values."""
    return isinstance(size, torch.SymInt) and bool(free_unbacked_symbols(size))


def is_plain_call(node: Node) -> bool:
    """Whether the node calls an operator of tensors."""
    return isinstance(node.target, OpOverload) and not isinstance(node.target, HigherOrderOperator)
