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


class _Tensor:
    """A tensor as a part of a key: equal to itself as long as nothing writes to it, and kept with the key."""

    __slots__ = ("tensor", "version")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.version = -1 if tensor.is_inference() else tensor._version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tensor) and self.tensor is other.tensor and self.version == other.version

    def __hash__(self) -> int:
        return hash((id(self.tensor), self.version))


class Attributes:
    """The plain attributes of ``modules``, and the tensors among their attributes, those that exist now."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._owners = [(type(module).__name__, vars(module)) for module in modules]
        self._places = [
            (own, name)
            for _, own in self._owners
            for name, value in own.items()
            if (type(value) in _PLAIN or isinstance(value, torch.Tensor)) and name != "training"
        ]
        self._names = [set(own) for _, own in self._owners]

    def values(self) -> list[Any]:
        """The values as they are now."""
        return [own.get(name) for own, name in self._places]

    def key(self) -> tuple[Any, ...]:
        """What a program depends on: values and their types (1, 1.0 and True are not the same).

        Of a tensor it is which one it is, and how often it was written.
        """
        found = [_Tensor(value) if isinstance(value, torch.Tensor) else value for value in self.values()]
        return (*found, *map(type, found))

    def changes(self, before: Sequence[Any]) -> list[Change]:
        """What is another value than it was among the ``before``, or new, and plain."""
        pairs = zip(self._places, before, strict=True)
        now = ((own, name, own.get(name), was) for (own, name), was in pairs)
        changed = [
            (own, name, value)
            for own, name, value, was in now
            if type(value) in _PLAIN and value is not was and (type(value) is not type(was) or value != was)
        ]
        return changed + self._new()

    def restore(self, before: Sequence[Any]) -> None:
        """Give the attributes the values that they had."""
        for (own, name), value in zip(self._places, before, strict=True):
            if own.get(name) is not value:
                own[name] = value
        for own, name, _ in self._new():
            del own[name]

    def _new(self) -> list[Change]:
        """Plain attributes that were not there when this was made."""
        pairs = zip(self._owners, self._names, strict=True)
        return [
            (own, name, own[name])
            for (_, own), names in pairs
            for name in own
            if name not in names and type(own[name]) in _PLAIN
        ]

    def name_of(self, change: Change) -> str:
        """What errors call an attribute: ``Net.calls``."""
        own, name, _ = change
        return next(f"{kind}.{name}" for kind, place in self._owners if place is own)
