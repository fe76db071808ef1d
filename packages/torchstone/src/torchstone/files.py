"""Writing a file whole or not at all, and reading one that has an end."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes ``path``'s place when the block ends well, and vanishes otherwise.

    The mode of the file before it stays, and links are followed. What is no regular file (a device,
    a pipe, ``/dev/stdout``) keeps its place: what is written goes straight into it. Raises
    ``OSError`` where it cannot be written.
    """
    descriptor = _descriptor_of(path)
    mode = _mode_of(path) if descriptor is None else None
    if descriptor is not None or (mode is not None and not stat.S_ISREG(mode)):
        with open(path if descriptor is None else os.dup(descriptor), "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    file = open(temporary, "xb")  # noqa: SIM115  # closed before it takes its place
    try:
        if mode is not None:
            os.fchmod(file.fileno(), stat.S_IMODE(mode))
        yield file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        os.replace(temporary, target)
    finally:
        with suppress(OSError):  # a full disk
            file.close()
        temporary.unlink(missing_ok=True)


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
