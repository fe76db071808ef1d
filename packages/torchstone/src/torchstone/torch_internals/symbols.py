"""Symbolic sizes: what PyTorch assumed of them where it traced a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import torch
from sympy import Float, Rational

from .probing import Internal

_SYMBOLS = "symbolic sizes"
_PythonPrinter = Internal("torch.utils._sympy.printers.PythonPrinter", _SYMBOLS)
_bound = Internal("torch.utils._sympy.value_ranges.bound_sympy", _SYMBOLS)
_ValueRanges = Internal("torch.utils._sympy.value_ranges.ValueRanges", _SYMBOLS)
_ToFloat = Internal("torch.utils._sympy.functions.ToFloat", _SYMBOLS)
_infinity = Internal("torch.utils._sympy.numbers.int_oo", _SYMBOLS)


def assumed_of(
    sizes: Sequence[torch.SymInt], ranges: Mapping[str, tuple[int, int | None]], known: Set[str]
) -> Iterator[str]:
    """Conditions on ``known`` symbols in Python's words, without those that ``ranges`` imply."""
    if not sizes:
        return
    environment: Any = sizes[0].node.shape_env
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


def _exact(condition: Any) -> Any:
    """A condition between floats, which PyTorch writes for sizes like ``4 * dim``, between integers."""
    floats = {number: Rational(number) for number in condition.atoms(Float)}
    if not floats:
        return condition
    fractions = condition.replace(_ToFloat.get(), lambda size: size).xreplace(floats)
    return fractions.replace(lambda part: part.is_Relational, _in_integers)


def _in_integers(relation: Any) -> Any:
    numerator, denominator = (relation.lhs - relation.rhs).as_numer_denom()
    return relation.func(numerator, 0) if denominator.is_Integer else relation
