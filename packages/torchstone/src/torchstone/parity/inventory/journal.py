"""A long recording that can be interrupted: finished parts are kept in a file beside the final one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from optest.files import NewFile


class Journal:
    """The finished parts of a recording to ``path``, in ``.NAME.journal`` beside it.

    ``lines`` has the parts, at first those of an interrupted run with the same ``origin``. Raises
    ``OSError`` if the file cannot be written.
    """

    def __init__(self, path: Path, origin: Mapping[str, Any]) -> None:
        self._path, self._journal = path, path.with_name(f".{path.name}.journal")
        self.lines = _lines(self._journal, origin)
        self._file = open(self._journal, "w", encoding="utf-8")  # noqa: SIM115 - __exit__ closes it
        for line in (origin, *self.lines):
            self._write(line)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._file.close()

    def add(self, line: Mapping[str, Any]) -> None:
        """Add one finished part, and write it to the file."""
        self.lines.append(dict(line))
        self._write(line)

    def finish(self, found: Mapping[str, Any]) -> None:
        """Write the whole recording to ``path``, and delete the journal."""
        with NewFile(self._path) as new:
            new.file.write((json.dumps(found, indent=1, ensure_ascii=False) + "\n").encode())
        self._journal.unlink()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _lines(journal: Path, origin: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the complete lines of a journal, if it begins with ``origin``."""
    try:
        lines = journal.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    found: list[dict[str, Any]] = []
    try:
        if json.loads(lines[0]) != origin:
            return []
        for line in lines[1:]:
            found.append(json.loads(line))
    except (ValueError, IndexError):
        return found  # the last line was being written
    return found
