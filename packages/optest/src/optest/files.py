"""Writes a file completely or not at all, and reads files up to a size limit."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self


def real_path(path: Path | str) -> Path:
    """Return ``path`` as an absolute path, with its links followed as far as possible.

    Links that form a cycle stay as they are; ``Path.resolve`` raises ``RuntimeError`` for them before
    Python 3.13.
    """
    return Path(os.path.realpath(path))


class NewFile:
    """A new file that replaces ``path`` atomically when it is committed.

    Until then it is a temporary file in the same folder, which :meth:`discard` removes. It gets the mode
    of the file that it replaces. Links are followed. If ``path`` is not a regular file (a device, a pipe,
    ``/dev/stdout``), the content is written directly to it. As a context manager, it commits, or discards
    if the block raises. Raises ``OSError`` if ``path`` cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._temporary: Path | None = None
        descriptor = _descriptor_of(path)
        if descriptor is not None:
            self.file: BinaryIO = open(os.dup(descriptor), "wb")  # noqa: SIM115  # closed by commit
            return
        mode = _mode_of(path)
        if mode is not None and not stat.S_ISREG(mode):
            self.file = open(path, "wb")  # noqa: SIM115
            return
        self._target = real_path(path)
        temporary = self._target.with_name(f".{secrets.token_hex(8)}.tmp")
        self.file = open(temporary, "xb")  # noqa: SIM115
        self._temporary = temporary
        if mode is not None:
            os.fchmod(self.file.fileno(), stat.S_IMODE(mode))

    def commit(self) -> None:
        """Replace ``path`` by the new file; if that fails, the new file is removed."""
        try:
            self.file.flush()
            if self._temporary is not None:
                os.fsync(self.file.fileno())
                self.file.close()
                os.replace(self._temporary, self._target)
                self._temporary = None
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file, and remove it unless it was committed."""
        with contextlib.suppress(OSError):  # the disk may be full
            self.file.close()
        if self._temporary is not None:
            self._temporary.unlink(missing_ok=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.commit()
        else:
            self.discard()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all, and create its folders; raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NewFile(path) as new:
        new.file.write(content)


def check_writable(path: Path) -> None:
    """Create the folders of ``path``; raises ``OSError`` if :class:`NewFile` could not write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if _descriptor_of(path) is None and _mode_of(path) is None:
        folder = os.path.dirname(os.path.realpath(path))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


MOST_BYTES = 256 << 20
"""The size limit of a file that is read completely; without one, ``/dev/zero`` would never end."""


def read_whole(path: Path) -> bytes:
    """Return the content of a file; raises ``OSError`` if it cannot be read or is too large."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def _mode_of(path: Path) -> int | None:
    """Return the mode of the file at ``path``, None if there is none; raises ``OSError`` if not writable."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    return mode


_MOST_LINKS = 40
"""How many links are followed; Linux has the same limit."""


def _descriptor_of(path: Path) -> int | None:
    """Return the file descriptor if ``path`` names an open file, as ``/dev/stdout`` does; else None."""
    own = os.path.realpath("/proc/self/fd")
    place = os.fspath(path)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.realpath(os.path.dirname(place)), os.path.basename(place)
        if folder == own and name.isdecimal():
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(os.path.join(folder, name)))
        except OSError:
            return None
    return None
