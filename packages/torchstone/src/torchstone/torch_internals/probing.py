"""Look up private names of PyTorch, with an error that says what is missing and what needs it."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ..errors import MissingInternal

_internals: list[Internal] = []


class Internal:
    """A private name of PyTorch, looked up at its first use.

    ``path`` is a dotted path of modules and attributes; ``feature`` names what does not work without it.
    """

    _UNKNOWN: Any = object()

    def __init__(self, path: str, feature: str) -> None:
        self.path, self.feature = path, feature
        self._value = self._UNKNOWN
        _internals.append(self)

    def get(self) -> Any:
        """Return the object that the name refers to. Raises :class:`MissingInternal` if PyTorch lacks it."""
        if self._value is self._UNKNOWN:
            self._value = resolve(self.path, self.feature)
        return self._value

    def find(self) -> Any:
        """Return the object that the name refers to, or None if this PyTorch lacks it."""
        try:
            return self.get()
        except MissingInternal:
            return None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.get()(*args, **kwargs)


class Replaceable(Internal):
    """A private name that a redirection replaces while it is on, so each use looks it up anew."""

    def get(self) -> Any:
        """Return what the name refers to now. Raises :class:`MissingInternal` if this PyTorch lacks it."""
        return resolve(self.path, self.feature)


def resolve(path: str, feature: str) -> Any:
    """Return the object that a dotted path names. Raises :class:`MissingInternal` if there is none."""
    *parents, name = path.split(".")
    found: Any = torch
    try:
        for depth, part in enumerate(parents[1:], 2):
            found = getattr(found, part, None) or importlib.import_module(".".join(parents[:depth]))
        return getattr(found, name) if hasattr(found, name) else importlib.import_module(path)
    except (AttributeError, ImportError) as error:
        raise missing(path, feature) from error


def missing(path: str, feature: str) -> MissingInternal:
    """Return the error for a name that this PyTorch lacks."""
    return MissingInternal(path, feature, str(torch.__version__))


def known() -> list[Internal]:
    """Return every :class:`Internal` that the imported modules declare."""
    return _internals
