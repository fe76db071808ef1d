"""Symbolic sizes: the conditions on them that PyTorch assumed in a trace, and the user's line of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from sympy import Float, Rational

from .patches import Patch, functions
from .probing import Internal

_SYMBOLS = "symbolic sizes"
_PythonPrinter = Internal("torch.utils._sympy.printers.PythonPrinter", _SYMBOLS)
_bound = Internal("torch.utils._sympy.value_ranges.bound_sympy", _SYMBOLS)
_ValueRanges = Internal("torch.utils._sympy.value_ranges.ValueRanges", _SYMBOLS)
_ToFloat = Internal("torch.utils._sympy.functions.ToFloat", _SYMBOLS)
_ShapeEnv = Internal("torch.fx.experimental.symbolic_shapes.ShapeEnv", _SYMBOLS)
_locate = Internal("torch.fx.experimental.symbolic_shapes.ShapeEnv._get_sloc", _SYMBOLS)
_guard_or_false = Internal("torch.fx.experimental.symbolic_shapes.guard_or_false", _SYMBOLS)
_infinity = Internal("torch.utils._sympy.numbers.int_oo", _SYMBOLS)


def is_known(condition: bool | torch.SymBool) -> bool:
    """Whether a condition on sizes holds, and assume the answer; False if a size depends on values."""
    return bool(_guard_or_false(condition))


def assumed_of(
    sizes: Sequence[torch.SymInt], ranges: Mapping[str, tuple[int, int | None]], known: Set[str]
) -> Iterator[str]:
    """Yield the conditions on ``known`` symbols as Python expressions, without those that ``ranges`` imply.

    If PyTorch assumes that a symbol equals an expression, it replaces the symbol by it. If such a symbol is
    in ``known``, it was still in use when ``known`` was read, so the equation is a condition too.
    """
    if not sizes:
        return
    environment: Any = sizes[0].node.shape_env
    for symbol in environment.replacements:
        value = environment.simplify(symbol)
        names = {str(one) for one in value.free_symbols}
        if str(symbol) in known and names and names <= known:
            yield f"{symbol} == {_PythonPrinter().doprint(value)}"
    seen = set()
    for guard in environment.guards:
        condition = environment.simplify(_exact(guard.expr))
        names = {str(symbol) for symbol in condition.free_symbols}
        if condition in seen or not names or not names <= known:
            continue
        seen.add(condition)
        bounds = {
            symbol: _ValueRanges(low, _infinity.get() if high is None else high)
            for symbol in condition.free_symbols
            for low, high in [ranges.get(str(symbol), (0, None))]
        }
        if not _bound(condition, bounds).is_singleton():
            yield _PythonPrinter().doprint(condition)


@dataclass(frozen=True)
class Assumption:
    """A condition on sizes as a Python expression, and the file and line of the call that needed it."""

    condition: str
    sources: Mapping[str, str]
    """For each name in the condition, PyTorch's name of that size, such as ``L['x'].size()[0]``."""
    place: tuple[str, int] | None


class Watch:
    """A recorder of what PyTorch assumes of symbolic sizes while the :attr:`patches` are in place.

    ``place`` is called at each assumption, and returns the line of the user's code that is running.
    """

    def __init__(self, place: Callable[[], tuple[str, int] | None]) -> None:
        self._places: dict[int, tuple[Any, tuple[str, int] | None]] = {}
        self._environment: Any = None
        theirs = _locate.find()

        def located(environment: Any, *args: Any, **kwargs: Any) -> Any:
            where = theirs(environment, *args, **kwargs)
            self._environment = environment
            self._places[id(where)] = where, place()  # keep ``where`` alive, so that its id stays unique
            return where

        self.patches: list[Patch] = [] if theirs is None else [functions(_ShapeEnv.get(), _get_sloc=located)]

    def assumed(self) -> Iterator[Assumption]:
        """Yield the assumptions on sizes of inputs so far, in order."""
        if self._environment is None:
            return
        names = {
            symbol: (self._environment.source_name_to_debug_name.get(sources[0].name), sources[0].name)
            for symbol, sources in self._environment.var_to_sources.items()
        }
        for guard in self._environment.guards:
            symbols = guard.expr.free_symbols
            if symbols and symbols <= names.keys():
                called = {one: names[one][0] or names[one][1] for one in symbols}
                condition = guard.expr.xreplace({one: one.func(name) for one, name in called.items()})
                yield Assumption(
                    _PythonPrinter().doprint(condition),
                    {name: names[one][1] for one, name in called.items()},
                    self._places.get(id(guard.sloc), (None, None))[1],
                )


def _exact(condition: Any) -> Any:
    """Turn a condition on floats, which PyTorch makes for sizes like ``4 * dim``, into one on integers."""
    floats = {number: Rational(number) for number in condition.atoms(Float)}
    if not floats:
        return condition
    fractions = condition.replace(_ToFloat.get(), lambda size: size).xreplace(floats)
    return fractions.replace(lambda part: part.is_Relational, _in_integers)


def _in_integers(relation: Any) -> Any:
    numerator, denominator = (relation.lhs - relation.rhs).as_numer_denom()
    return relation.func(numerator, 0) if denominator.is_Integer else relation
