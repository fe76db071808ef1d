"""Numbers, words and switches that modules keep in attributes: code of a step may read and change them.

What it read is part of the program, so another value is another program. What it changed changes again
with each step that the program makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import NoneType
from typing import Any

import torch

_PLAIN = frozenset({bool, int, float, str, NoneType})

Change = tuple[dict[str, Any], str, Any]
"""The dict of a module's attributes, a name, and the value after a step."""


class Attributes:
    """The plain attributes of ``modules``, those that exist now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._names = [
            (type(module).__name__, vars(module), name)
            for module in modules
            for name, value in vars(module).items()
            if type(value) in _PLAIN and name != "training"
        ]
        self._places = [(own, name) for _, own, name in self._names]

    def values(self) -> tuple[Any, ...]:
        """The values, and behind them their types: 1, 1.0 and True are not the same."""
        found = [own.get(name) for own, name in self._places]
        return (*found, *map(type, found))

    def changes(self, before: Sequence[Any]) -> list[Change]:
        """What is another value than it was among the ``before``, and plain."""
        pairs = zip(self._places, before, strict=False)
        now = ((own, name, own.get(name), was) for (own, name), was in pairs)
        return [
            (own, name, value)
            for own, name, value, was in now
            if type(value) in _PLAIN and (value is not was and (value != was or type(value) is not type(was)))
        ]

    def restore(self, before: Sequence[Any]) -> None:
        """Give the attributes the values that they had."""
        for (own, name), value in zip(self._places, before, strict=False):
            if own.get(name) is not value:
                own[name] = value

    def name_of(self, change: Change) -> str:
        """What errors call an attribute: ``Net.calls``."""
        own, name, _ = change
        return next(f"{kind}.{name}" for kind, place, other in self._names if place is own and other == name)
