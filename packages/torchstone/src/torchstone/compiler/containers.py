"""Remembers what lists and dicts contain, to tell and undo what a forward pass changes in them."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any

_SEQUENCES, _MAPPINGS = (list, deque), (dict, OrderedDict, defaultdict)


def is_container(value: Any) -> bool:
    """Whether ``value`` is a list, deque or dict, and not of a class that only behaves like one."""
    return type(value) in (*_SEQUENCES, *_MAPPINGS)


class Contents:
    """What containers have contained since they were added."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[str, Any, Any]] = {}

    def add(self, path: str, container: Any) -> None:
        """Remember the content of a list, deque or dict. ``path`` says where it is."""
        self._before.setdefault(id(container), (path, container, container.copy()))

    def add_all(self, path: str, value: Any) -> None:
        """Remember the contents of ``value`` and of the containers inside, if it is a container or tuple."""
        if is_container(value):
            self.add(path, value)
        elif not isinstance(value, tuple):
            return
        for key, one in [*(value.items() if isinstance(value, dict) else enumerate(value))]:
            self.add_all(f"{path}[{key!r}]", one)

    def changed(self) -> list[str]:
        """Return the paths of the containers that contain other objects now, or the same in another order."""
        return [path for path, container, content in self._before.values() if _differ(container, content)]

    def put_back(self) -> None:
        """Give all containers the content that they had."""
        for _, container, content in self._before.values():
            if _differ(container, content):
                container.clear()
                (container.extend if isinstance(container, _SEQUENCES) else container.update)(content)


def _differ(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return list(one) != list(other) or _differ(list(one.values()), list(other.values()))
    return len(one) != len(other) or any(a is not b for a, b in zip(one, other, strict=True))
