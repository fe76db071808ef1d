"""Which Python values are the same for a program: the parts of the keys by which a step finds programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch

_BY_VALUE = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.memory_format)


class Same:
    """An object in a key, equal only to itself. The key refers to it weakly if its class allows that."""

    __slots__ = ("_identity", "_value")

    def __init__(self, value: Any) -> None:
        self._identity = id(value)
        self._value: Callable[[], Any]
        try:
            self._value = ref(value)
        except TypeError:
            self._value = lambda: value

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Same) and self._identity == other._identity and self._value() is other._value()
        )

    def __hash__(self) -> int:
        return self._identity


class Form:
    """A large part of a key, whose hash is computed only once."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self.parts = parts
        self._hash = hash(parts)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Form) or self._hash != other._hash or self.parts != other.parts:
            return False
        self.parts = other.parts  # the next comparison finds the same objects, which is much faster
        return True

    def __hash__(self) -> int:
        return self._hash


def is_value(value: Any) -> bool:
    """Whether other objects of the same type and the same ``repr`` are the same for a program."""
    return isinstance(value, _BY_VALUE)


def same_value(one: Any, other: Any) -> bool:
    """Whether both are values of the same type and ``repr``: 1, 1.0 and True differ, as do 0.0 and -0.0."""
    return is_value(one) and type(one) is type(other) and repr(one) == repr(other)
