"""A static scan that counts how often the code in given folders uses each API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GapsError, ScriptError
from ..redirect.sources import SiteKind, python_files, scan_file

_BY_LEAF = ("torch.Tensor", "torch.nn.Module")
"""The classes to which a method of an object of unknown type may belong."""
_SAID_EVERY = 100
"""The number of files between two progress reports."""


@dataclass(frozen=True)
class Usage:
    """The number of uses by dotted name; for an object of unknown type, the key is ``.method``."""

    names: Mapping[str, int] = field(default_factory=dict)
    files: int = 0
    unreadable: int = 0

    def of(self, api: str) -> int:
        """Return how often ``api`` is used."""
        owner, _, leaf = api.rpartition(".")
        by_leaf = self.names.get(f".{leaf}", 0) if owner in _BY_LEAF else 0
        return self.names.get(api, 0) + by_leaf


def scan_usage(paths: Iterable[Path], stage: Callable[[str], None] = lambda text: None) -> Usage:
    """Count the uses in all Python files below ``paths``; a file that is not Python 3 counts as unreadable.

    ``stage`` is called now and then with the number of files read.
    Raises :class:`GapsError` if a path does not exist.
    """
    names: Counter[str] = Counter()
    read = unreadable = 0
    for root in paths:
        if not root.exists():
            raise GapsError(
                f"there is no {root} to count uses in", hint="give a folder or a file of Python code"
            )
        for path in python_files(root):
            if (read + unreadable) % _SAID_EVERY == 0:
                stage(f"counting uses below {root}: {read + unreadable:,} files")
            try:
                sites = scan_file(path)
            except ScriptError:
                unreadable += 1
                continue
            read += 1
            for site in sites:
                if site.kind in (SiteKind.METHOD, SiteKind.ATTRIBUTE):
                    names[f".{site.name}"] += 1
                elif site.kind is not SiteKind.STRING:
                    names[site.name] += 1
    return Usage(names, read, unreadable)
