"""Plain attributes of modules (numbers, strings, booleans, None), which code of a step may read and change.

The values that the code reads are part of the program, so other values need another program. The values that
it sets are set again after each step that runs the program.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import torch

_PLAIN = frozenset({bool, int, float, str, NoneType})

Change = tuple[dict[str, Any], str, Any]
"""The dict of a module's attributes, a name, and the value after a step."""
_ABSENT = object()


class Attributes:
    """The attributes of ``modules``. Changes are found in plain ones; plain ones and tensors are restored."""

    def __init__(self, modules: Iterable[torch.nn.Module]) -> None:
        self._owners = [(type(module).__name__, vars(module)) for module in modules]

    def values(self) -> list[dict[str, Any]]:
        """Return the attributes of each module as they are now."""
        return [dict(own) for _, own in self._owners]

    def changes(self, before: Sequence[Mapping[str, Any]]) -> list[Change]:
        """Return the plain attributes that are new or differ from those in ``before``."""
        pairs = zip(self._owners, before, strict=True)
        now = (
            (own, name, one, was.get(name, _ABSENT)) for (_, own), was in pairs for name, one in own.items()
        )
        return [
            (own, name, value)
            for own, name, value, was in now
            if type(value) in _PLAIN and value is not was and (type(value) is not type(was) or value != was)
        ]

    def restore(self, before: Sequence[Mapping[str, Any]]) -> None:
        """Give the attributes their values from ``before``, and delete plain ones that were not there."""
        for (_, own), was in zip(self._owners, before, strict=True):
            for name in [name for name, value in own.items() if name not in was and type(value) in _PLAIN]:
                del own[name]
            for name, value in was.items():
                if own.get(name, _ABSENT) is not value and (_is_kept(value) or _is_kept(own.get(name))):
                    own[name] = value

    def name_of(self, change: Change) -> str:
        """Return the name of an attribute for error messages, such as ``Net.calls``."""
        own, name, _ = change
        return next(f"{kind}.{name}" for kind, place in self._owners if place is own)


def _is_kept(value: Any) -> bool:
    return type(value) in _PLAIN or isinstance(value, torch.Tensor)
