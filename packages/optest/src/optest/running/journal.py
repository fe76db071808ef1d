"""The journal of a run: one line per finished task, so that ``--resume`` can continue the run.

A line is written as soon as its task has results, so that even ``kill -9`` loses at
most the tasks in flight. The results are those before declared gaps are applied.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ..core.result import CaseResult
from ..errors import EnvironmentError_

_HINT = "OPTEST_HOME names the folder that optest keeps its files in"


class Journal:
    """The journal in ``path``; with ``resume``, it holds the results of an interrupted run.

    While another process writes to ``path``, a new run uses a file beside it, and ``resume`` raises
    :class:`EnvironmentError_`. Every method raises it if the file cannot be read or written.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path, self.resume = path, resume
        self._file: FileIO | None = None
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of tasks from the interrupted run."""
        self._open()
        return len(self._places)

    def find(self, key: str) -> tuple[list[CaseResult], dict[str, float]] | None:
        """Return the results of task ``key`` in the interrupted run, and the seconds of its parts by name."""
        line = self._line(key)
        if line is None:
            return None
        return [CaseResult.from_dict(one) for one in line["results"]], line.get("seconds", {})

    def add(self, key: str, results: Sequence[CaseResult], seconds: Mapping[str, float]) -> None:
        """Write a task's results as one line, so that a later run finds all of them or none.

        The operating system has them when this returns. ``seconds`` are the seconds of their parts, by name.
        """
        kept = f'"results": [{", ".join(one.json for one in results)}], "seconds": {json.dumps(seconds)}'
        self._write(f'{{"key": {json.dumps(key)}, {kept}}}')

    def _line(self, key: str) -> dict[str, Any] | None:
        self._open()
        place = self._places.get(key) if self._places else None
        if place is None:
            return None
        with self.path.open("rb") as file:
            file.seek(place)
            found: dict[str, Any] = json.loads(file.readline())
            return found

    def _write(self, line: str) -> None:
        try:
            self._open().write(f"{line}\n".encode())
        except OSError as error:
            raise self._unusable(error) from error

    def close(self, *, complete: bool) -> None:
        """Close the file; if the run is ``complete``, delete it."""
        if self._file is None:
            return
        if complete:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
        self._file.close()
        self._file = None

    def _open(self) -> FileIO:
        if self._file is not None:
            return self._file
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            file = FileIO(self.path, "a+")
            if not _locked(file):
                file.close()
                if self.resume:
                    raise EnvironmentError_(
                        f"the run to resume is still going on: another process writes to {self.path}",
                        "wait for it, or run without --resume",
                    )
                self.path = self.path.with_suffix(f".{os.getpid()}.jsonl")
                file = FileIO(self.path, "a+")
                _locked(file)
            if self.resume:
                self._places = dict(_read(file))
            else:
                file.truncate(0)
        except OSError as error:
            raise self._unusable(error) from error
        self._file = file
        return file

    def _unusable(self, error: OSError) -> EnvironmentError_:
        return EnvironmentError_(f"the journal {self.path} cannot be written: {error.strerror}", _HINT)


def _locked(file: FileIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(file: FileIO) -> Iterator[tuple[str, int]]:
    """Yield the key and position of each whole line; cut off a line that was not fully written."""
    end = 0
    with open(file.name, "rb") as reader:
        for line in reader:
            try:
                found = json.loads(line) if line.endswith(b"\n") else {}
                key = found["key"] if "results" in found else None
            except (ValueError, KeyError, TypeError):
                key = None
            if key is None:
                break
            yield key, end
            end += len(line)
    file.truncate(end)
