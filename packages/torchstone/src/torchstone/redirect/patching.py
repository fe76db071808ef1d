"""Resolving the rows of :mod:`.areas`, putting the replacements in place and taking them out.

:mod:`.context` counts the scopes; it calls :func:`apply` for the first and :func:`restore` after the last.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec, PathFinder
from types import FunctionType, ModuleType
from typing import Any

import torch

from ..torch_internals import redirection
from ..torch_internals.dispatch import without_function_modes
from ..torch_internals.dynamo import read_names_once
from .mirror import Implementation, mirror
from .mode import TABLE
from .rows import Patch, Place, Row
from .scope import Scope

_placed: list[Patch] = []
"""The patches that are in place now, in the order in which they were put there."""


def patches() -> tuple[Patch, ...]:
    """Return the patch of every name that a scope treats, in table order; the mode's own names come last."""
    dispatched = [
        Patch(
            one.name,
            "wraps",
            f"dispatched: {one.note}",
            one.function,
            one.function,
            differs=one.function is torch.Tensor.is_pinned,
        )
        for one in TABLE
    ]
    found = (one for module in _rows() for one in _resolved(module))
    return (*found, *dispatched)


@functools.cache
def _rows() -> dict[str, tuple[Row, ...]]:
    """Return the rows by the module whose loading they wait for; the key ``""`` (no wait) comes first."""
    from .areas import ROWS

    names = dict.fromkeys(("", *(row.late for row in ROWS)))
    return {name: tuple(row for row in ROWS if row.late == name) for name in names}


@functools.cache
def _resolved(module: str) -> tuple[Patch, ...]:
    """Return the patches that are due once ``module`` is loaded."""
    found = (resolve(row) for row in _rows()[module])
    return tuple(patch for patch in found if patch is not None)


def resolve(row: Row) -> Patch | None:
    """Return the patch of one row, or None for an optional name that this PyTorch lacks."""
    try:
        owner, attribute = find_owner(row.name)
        raw = _raw(owner, attribute)
    except (AttributeError, ImportError):
        if row.optional:
            return None
        if row.otherwise is None:
            raise
        raw = row.otherwise
    original, rewrap = _unwrap(raw)
    replacement = _replacement(row, original)
    differs = row.differs or "by policy" in row.note
    if replacement is original:
        return Patch(row.name, row.treatment, row.note, original, original, differs=differs)
    places, installed = tuple(_places(owner, attribute, raw)), rewrap(replacement)
    return Patch(row.name, row.treatment, row.note, original, replacement, places, installed, differs)


def _raw(owner: Any, attribute: str) -> Any:
    """Return the unbound attribute; some of PyTorch's modules have it only through ``__getattr__``."""
    try:
        return inspect.getattr_static(owner, attribute)
    except AttributeError:
        return getattr(owner, attribute)


def find_owner(name: str) -> tuple[Any, str]:
    """Return the module or class that holds the last part of a dotted name, and that part."""
    *path, attribute = name.split(".")
    owner: Any = importlib.import_module(path[0])
    for depth, part in enumerate(path[1:], 2):
        owner = getattr(owner, part, None) or importlib.import_module(".".join(path[:depth]))
    return owner, attribute


def _replacement(row: Row, original: Any) -> Any:
    if row.replacement is not None:
        return row.replacement(original)
    implementation = row.around(original) if row.around is not None else row.implementation
    if implementation is None:
        return original
    return mirror(original, _told(row, implementation), by_caller=row.by_caller)


def _told(row: Row, implementation: Implementation) -> Implementation:
    """Return ``implementation`` wrapped to report each call to the scope's log."""

    def told(scope: Scope, *args: Any, **kwargs: Any) -> Any:
        if scope.log is not None:
            scope.record(row.name, row.note)
        return implementation(scope, *args, **kwargs)

    for one in (told, implementation):
        if isinstance(one, FunctionType):
            redirection.not_compiled_alone(one)
    return told


def _unwrap(raw: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the function inside a descriptor, and a function that wraps a replacement in the same way."""
    if isinstance(raw, staticmethod | classmethod):
        return raw.__func__, type(raw)
    if isinstance(raw, property):
        return raw.fget, lambda getter: property(getter, raw.fset, raw.fdel, raw.__doc__)
    return raw, lambda replacement: replacement


def _places(owner: Any, attribute: str, raw: Any) -> Iterator[Place]:
    """Yield the places of the object: its public name, and its name in the module that defines it."""
    yield Place(owner, attribute, raw, attribute in vars(owner))
    home = sys.modules.get(getattr(raw, "__module__", None) or "")
    elsewhere = isinstance(owner, ModuleType) and home is not None and home is not owner
    if elsewhere and vars(home).get(attribute) is raw:
        yield Place(home, attribute, raw, own=True)


def apply() -> None:
    """Put every replacement in place of its original; if one fails, undo all of them."""
    with _LOCK:
        _state.wanted = True
        sys.meta_path.insert(0, _finder)
        try:
            _put()
        except BaseException:
            restore()
            raise


def restore() -> None:
    """Put every original back, the identical object."""
    with _LOCK:
        _state.wanted = False
        sys.meta_path.remove(_finder)
        _take_out()


def _put() -> None:
    _state.importing += 1  # resolving imports modules, which must find the originals too
    try:
        read_names_once()  # now, before anything is replaced
        due = [module for module in _rows() if not module or module in sys.modules]
        wanted = [patch for module in due for patch in _resolved(module)]
    finally:
        _state.importing -= 1
    for patch in wanted:
        _placed.append(patch)
        for place in patch.places:
            setattr(place.owner, place.attribute, patch.installed)


def _take_out() -> None:
    while _placed:
        patch = _placed.pop()
        for place in reversed(patch.places):
            if place.own:
                setattr(place.owner, place.attribute, place.raw)
            elif place.attribute in vars(place.owner):
                delattr(place.owner, place.attribute)


# Modules of PyTorch that are imported inside a scope ---------------------------------------


@dataclass
class _State:
    wanted: bool = False
    """Whether a scope is open."""
    importing: int = 0
    """The number of PyTorch modules that are being executed now; the originals are in place meanwhile."""


_LOCK = threading.RLock()
_state = _State()


@contextlib.contextmanager
def _originals_in_place() -> Iterator[None]:
    """Put the originals back for the block, as PyTorch's own modules keep what they import by name."""
    with _LOCK:
        _state.importing += 1
        _take_out()
    try:
        with without_function_modes():
            yield
    finally:
        with _LOCK:
            _state.importing -= 1
            if _state.wanted and not _state.importing:
                _put()


class _Finder(MetaPathFinder):
    """An import hook that executes PyTorch's modules with the originals in place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname.startswith("torch.") else None
        if spec is None or not isinstance(spec.loader, SourceLoader):
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            with _originals_in_place():
                execute(module)

        loader.exec_module = exec_module
        return spec


_finder = _Finder()
