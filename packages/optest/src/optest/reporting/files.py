"""The base of reporters that write a file, which appears when it is complete, or not at all."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from ..errors import ReportError
from ..files import NewFile, check_writable
from .manager import Reporter

if TYPE_CHECKING:
    from ..core.result import RunInfo


class FileReporter(Reporter):
    """A reporter that writes a new file, which replaces ``path`` at the end."""

    suffix: ClassVar[str]

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(f"optest-report.{self.suffix}")
        self._new: NewFile | None = None
        self._file: IO[str]
        self.run: RunInfo

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """Raise :class:`ReportError` if the file cannot be created."""
        self.run = run
        try:
            check_writable(self.path)
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def file(self) -> IO[str]:
        """The new file, created when it is first used."""
        if self._new is None:
            self._new = NewFile(self.path)
            self._file = io.TextIOWrapper(
                self._new.file, encoding="utf-8", errors="backslashreplace", write_through=True
            )
        return self._file

    def commit(self) -> None:
        """Replace ``path`` by the new file."""
        file = self.file
        assert self._new is not None
        try:
            file.flush()
            self._new.commit()
        except OSError as error:
            raise self._unwritable(error) from error
        finally:
            self.discard()

    def discard(self) -> None:
        if self._new is not None:
            self._new.discard()
            self._new = None

    def _unwritable(self, error: OSError) -> ReportError:
        why = error.strerror or str(error)
        return ReportError(f"the {self.name} report {self.path} cannot be written: {why}")
