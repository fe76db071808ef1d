"""What reporters that write a file have in common: it appears when it is whole, or not at all."""

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
    """Writes a new file, which takes the place of ``path`` in the end."""

    suffix: ClassVar[str]

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(f"optest-report.{self.suffix}")
        self._new: NewFile | None = None
        self._file: IO[str]
        self.run: RunInfo

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """Raises :class:`ReportError` if the file cannot be made."""
        self.run = run
        try:
            check_writable(self.path)
        except OSError as error:
            raise self._unwritable(error) from error

    @property
    def file(self) -> IO[str]:
        """The new file, made at its first use."""
        if self._new is None:
            self._new = NewFile(self.path)
            self._file = io.TextIOWrapper(
                self._new.file, encoding="utf-8", errors="backslashreplace", write_through=True
            )
        return self._file

    def commit(self) -> None:
        """Put the file in its place."""
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
