"""Looking up one private name of PyTorch, with an error that says what is missing and what needs it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..errors import MissingInternal

_internals: list[Internal] = []
_UNKNOWN: Any = object()


class Internal:
    """A private name of PyTorch, looked up at its first use.

    ``path`` is dotted, modules and attributes alike; ``feature`` is what does not work without it.
    """

    def __init__(self, path: str, feature: str) -> None:
        self.path, self.feature = path, feature
        self._value = _UNKNOWN
        _internals.append(self)

    def get(self) -> Any:
        """What the name stands for. Raises :class:`MissingInternal` if this PyTorch lacks it."""
        if self._value is _UNKNOWN:
            self._value = resolve(self.path, self.feature)
        return self._value

    def is_there(self) -> bool:
        """Whether this PyTorch has the name."""
        try:
            self.get()
        except MissingInternal:
            return False
        return True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get()(*args, **kwargs)


def resolve(path: str, feature: str) -> Any:
    """The object that a dotted path names. Raises :class:`MissingInternal` if there is none."""
    *parents, name = path.split(".")
    found: Any = torch
    try:
        for depth, part in enumerate(parents[1:], 2):
            found = getattr(found, part, None) or importlib.import_module(".".join(parents[:depth]))
        return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)
    except (AttributeError, ImportError) as error:
        raise MissingInternal(path, feature, str(torch.__version__)) from error


def missing_internals() -> list[Internal]:
    """The names that this PyTorch lacks, of those that the imported modules declare."""
    return [internal for internal in _internals if not internal.is_there()]
