"""What reporters that write a file have in common: it appears when it is whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from ..errors import ReportError
from .manager import Reporter

if TYPE_CHECKING:
    from ..core.result import RunInfo


class FileReporter(Reporter):
    """Writes to a temporary file beside ``path``, which replaces it in the end."""

    suffix: ClassVar[str]

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(f"optest-report.{self.suffix}")
        self._file: IO[str] | None = None
        self.run: RunInfo

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """Raises :class:`ReportError` if the file cannot be made."""
        self.run = run
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        if self.path.is_dir():
            raise self._unwritable("it is a folder")
        if not os.access(folder, os.W_OK):
            raise self._unwritable("permission denied")

    @property
    def file(self) -> IO[str]:
        """The temporary file, made at its first use."""
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile(  # noqa: SIM115  # closed by commit
                "w+", encoding="utf-8", dir=self.path.parent, prefix=f".{self.path.name}.", delete=False
            )
            os.fchmod(self._file.fileno(), 0o644)
        return self._file

    def commit(self) -> None:
        """Put the file in its place."""
        file = self.file
        try:
            file.close()
            os.replace(file.name, self.path)
        except OSError as error:
            raise self._unwritable(error.strerror or str(error)) from error
        finally:
            self.discard()

    def discard(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk
                self._file.close()
            Path(self._file.name).unlink(missing_ok=True)
            self._file = None

    def _unwritable(self, why: str) -> ReportError:
        return ReportError(f"the {self.name} report {self.path} cannot be written: {why}")
