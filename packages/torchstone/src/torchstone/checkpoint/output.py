"""A new file that several threads write at once; large data goes straight to the disk where that works.

Data written the usual way goes through the page cache, which may start to write late and then all at once.
Direct writes (``O_DIRECT``) need memory and places in the file at multiples of :data:`_BLOCK`, so data is
copied to a buffer, and the ends of a piece that do not fill a block go through the page cache. Where a file
system has no direct writes, everything does.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from pathlib import Path

_BLOCK = 4096
"""Direct writes begin and end at multiples of this many bytes: a block of any usual disk."""
_LEAST = 1 << 20
"""Pieces of fewer bytes go through the page cache."""

_NOT_DIRECTLY = {errno.EINVAL, errno.ENOTSUP}
"""The errors of file systems that open a file for direct writes but do not write so."""


class Output:
    """A file that did not exist before. :meth:`write` may be called by several threads."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._direct: int | None = None
        with contextlib.suppress(OSError, AttributeError):
            self._direct = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
        self._works_directly = self._direct is not None
        self._buffers = threading.local()

    def write(self, data: memoryview, at: int) -> None:
        """Write bytes at a place in the file."""
        begin, end = -(-at // _BLOCK) * _BLOCK, (at + len(data)) // _BLOCK * _BLOCK
        if not self._works_directly or len(data) < _LEAST or begin >= end:
            _write_all(self._descriptor, data, at)
            return
        _write_all(self._descriptor, data[: begin - at], at)
        written = self._write_directly(data[begin - at : end - at], begin)
        _write_all(self._descriptor, data[begin - at + written :], begin + written)

    def _write_directly(self, data: memoryview, at: int) -> int:
        """Write whole blocks past the page cache; return how many bytes were written."""
        assert self._direct is not None
        buffer = getattr(self._buffers, "buffer", None)
        if buffer is None or len(buffer) < len(data):
            buffer = self._buffers.buffer = mmap.mmap(-1, len(data))
        with memoryview(buffer) as whole, whole[: len(data)] as filled:
            filled[:] = data
            try:
                return os.pwrite(self._direct, filled, at)
            except OSError as error:
                if error.errno not in _NOT_DIRECTLY:
                    raise
                self._works_directly = False
                return 0

    def sync(self) -> None:
        """Make what was written durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
        if self._direct is not None:
            os.close(self._direct)


def _write_all(descriptor: int, data: memoryview, at: int) -> None:
    while data:
        written = os.pwrite(descriptor, data, at)
        data, at = data[written:], at + written
