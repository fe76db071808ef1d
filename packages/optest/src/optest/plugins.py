"""Plugins: modules that register drivers and operators when they are imported.

``bootstrap`` imports the plugins in ``OPTEST_PLUGINS`` (comma-separated) and in the entry
points ``optest.backends`` and ``optest.operators``. A plugin that fails is reported
by name and has no other effect. This module imports nothing heavy.
"""

from __future__ import annotations

import importlib
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

VARIABLE = "OPTEST_PLUGINS"
GROUPS = ("optest.backends", "optest.operators")


@dataclass(frozen=True)
class Plugin:
    """One plugin: where it was named, and what went wrong, if anything."""

    name: str
    source: str
    error: str = ""

    @property
    def loaded(self) -> bool:
        return not self.error

    def text(self) -> str:
        return f"plugin {self.name} (from {self.source}) " + (
            f"failed: {self.error}" if self.error else "loaded"
        )


_loaded: dict[tuple[str, str], Plugin] = {}
_lock = threading.RLock()


def bootstrap() -> tuple[Plugin, ...]:
    """Load every plugin that is not loaded yet; return the outcome of each, including failures.

    An entry point may name a module, which registers on import, or a callable, which is
    called without arguments. A second call of ``bootstrap`` loads only new plugins.
    """
    with _lock:
        for name, source, load in _named():
            if (name, source) not in _loaded:
                _loaded[name, source] = Plugin(name, source, _attempt(load))
        return tuple(_loaded.values())


def _named() -> Iterator[tuple[str, str, Callable[[], Any]]]:
    for part in os.environ.get(VARIABLE, "").split(","):
        if name := part.strip():
            yield name, VARIABLE, partial(importlib.import_module, name)
    for group in GROUPS:
        for point in metadata.entry_points(group=group):
            distribution = point.dist.name if point.dist else "an unnamed distribution"
            yield point.name, f"{distribution}, {group}", partial(_call, point.load)


def _call(load: Callable[[], Any]) -> None:
    found = load()
    if callable(found):
        found()


def _attempt(load: Callable[[], Any]) -> str:
    """Run foreign code and return any exception as text; Ctrl-C is raised."""
    try:
        load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # even SystemExit must not end the run
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
    return ""
