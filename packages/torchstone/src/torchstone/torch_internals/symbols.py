"""Symbolic sizes: what PyTorch assumed of them where it traced a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from .probing import Internal

_SYMBOLS = "symbolic sizes"
_PythonPrinter = Internal("torch.utils._sympy.printers.PythonPrinter", _SYMBOLS)
_bound = Internal("torch.utils._sympy.value_ranges.bound_sympy", _SYMBOLS)
_ValueRanges = Internal("torch.utils._sympy.value_ranges.ValueRanges", _SYMBOLS)
_infinity = Internal("torch.utils._sympy.numbers.int_oo", _SYMBOLS)


def assumed_of(sizes: Sequence[torch.SymInt], ranges: Mapping[str, tuple[int, int | None]]) -> Iterator[str]:
    """Conditions on the symbols of ``sizes``, in Python's words, without those that ``ranges`` imply."""
    if not sizes:
        return
    environment: Any = sizes[0].node.shape_env
    seen = set()
    for guard in environment.guards:
        condition = environment.simplify(guard.expr)
        if condition in seen or not condition.free_symbols:
            continue
        seen.add(condition)
        bounds = {
            symbol: _ValueRanges(low, _infinity.get() if high is None else high)
            for symbol in condition.free_symbols
            for low, high in [ranges.get(str(symbol), (0, None))]
        }
        if not _bound(condition, bounds).is_singleton():
            yield _PythonPrinter().doprint(condition)
