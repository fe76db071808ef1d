"""Writing a file whole or not at all, and reading one that has an end."""

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
    """``path``, absolute and with its links followed, as far as they lead.

    Links that form a ring stay as they are; before Python 3.13 ``Path.resolve`` raises ``RuntimeError``.
    """
    return Path(os.path.realpath(path))


class NewFile:
    """What takes the place of ``path``, all at once, when it is committed.

    Until then it is a file beside it, which :meth:`discard` removes; the mode of the file before
    it stays. Links are followed. What is not a regular file (a device, a pipe, ``/dev/stdout``) keeps
    its place, and what is written goes straight into it. As a context manager it commits, or discards
    if the block raises. Raises ``OSError`` where ``path`` cannot be written.
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
        """Put the file in its place; nothing is left of it where that fails."""
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
        """Close the file, and remove it unless it is in its place."""
        with contextlib.suppress(OSError):  # a full disk
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
    """Write a file whole or not at all, with the folders it is in. Raises ``OSError``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with NewFile(path) as new:
        new.file.write(content)


def check_writable(path: Path) -> None:
    """Make the folders of ``path``; raises ``OSError`` where :class:`NewFile` could not write it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if _descriptor_of(path) is None and _mode_of(path) is None:
        folder = os.path.dirname(os.path.realpath(path))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)


MOST_BYTES = 256 << 20
"""Of a file that is read as a whole: ``/dev/zero`` never ends."""


def read_whole(path: Path) -> bytes:
    """The content of a file that somebody names. Raises ``OSError`` if it cannot be read or is too large."""
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return content


def _mode_of(path: Path) -> int | None:
    """The mode of what is at ``path``, None if nothing is; raises ``OSError`` if it cannot be written."""
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
"""As many as Linux follows."""


def _descriptor_of(path: Path) -> int | None:
    """The number of the open file that ``path`` stands for, as ``/dev/stdout`` does, if it does."""
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
