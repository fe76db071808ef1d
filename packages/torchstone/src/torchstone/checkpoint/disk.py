"""The single steps of a save on the disk: folders, locks, removal."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from ..errors import CheckpointBusy, CheckpointError

_NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}
"""The errors of ``flock`` on a file system that has no locks."""


def sync_folder(path: Path) -> None:
    """Make the entries of a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder and its parents, each of them durable. Folders that exist are not changed."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file or folder that nothing refers to. Whatever cannot be removed now is left."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock on ``folder`` inside the block, so that no other process saves there.

    Yields False if the file system has no locks. Raises :class:`CheckpointBusy` if another process has the
    lock. The system releases the lock when the process ends, for whatever reason.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CheckpointBusy(
                f"another process is saving to {folder}",
                hint="give each process a path of its own, or let one of them save",
            ) from None
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            yield False
            return
        try:
            yield True
        finally:
            # A child process that was forked in the block has the descriptor too: closing is not enough.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def failures_of(what: str) -> Iterator[None]:
    """Turn the system's errors into a :class:`CheckpointError` with the message "cannot ``what``"."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise CheckpointError(
            f"cannot {what}: {error.strerror or error}",
            hint="free some space or choose another disk; what was there before is untouched"
            if full
            else "check that the folder exists and that this process may use it",
        ) from error
