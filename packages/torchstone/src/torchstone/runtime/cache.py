"""The compilation cache: loaded programs in memory, and their images on disk.

Reading an image can run code. So the directory is used only if it belongs to
this user and nobody else can write to it, and every file is opened through
that directory's own descriptor, never through a symbolic link. If a directory
cannot be used, or a disk is full, there is one :class:`CacheWarning` and work
continues without the cache. If a file is damaged, its program is compiled again.

Not here: what goes into a key (see :mod:`.pjrt`) and what an image contains.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from ..errors import CacheWarning

Value = TypeVar("Value")

_MAGIC = b"torchstone-cache-1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_SUFFIX = ".xla"
_TEMPORARY = ".tmp"
_WRITERS = 8
"""How many processes may write at the same time and together stay within the size limit."""
_SLACK = 16
"""A full directory is cleared to one ``_SLACK``-th below its limit, so that the next writes need no scan."""


def digest(parts: Iterable[bytes]) -> str:
    """Return a SHA-256 over the parts and their lengths, in hexadecimal."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()


class MemoryCache(Generic[Value]):
    """A cache of the most recently used values; only one thread makes a missing value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[str, Future[Value]] = OrderedDict()

    def get(self, key: str, make: Callable[[], Value], limit: int) -> tuple[Value, bool]:
        """Return the value of ``key``, made by ``make`` if it is missing, and whether it was there already.

        If ``make`` raises, every thread that waits for the value gets the exception. At most ``limit`` values
        are kept.
        """
        with self._lock:
            future = self._values.get(key)
            found = future is not None
            if future is None:
                future = self._values[key] = Future()
            self._values.move_to_end(key)
        if found:
            return future.result(), True
        try:
            future.set_result(make())
        except BaseException as error:
            with self._lock:
                self._values.pop(key, None)
            future.set_exception(error)
            raise
        with self._lock:
            while len(self._values) > limit:
                self._values.popitem(last=False)
        return future.result(), False

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


class DiskCache:
    """A cache of files ``<key>.xla`` in one directory, with a limit on their total size.

    Each file is a magic line, the SHA-256 of what follows, the key, and the
    payload. A hit refreshes the file's time, and the oldest files are dropped
    first. The directory may have tens of thousands of files, so it is not scanned
    at each write, but only when the writes of this process since the last scan
    may have reached the limit.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._warned = False
        self._bound = 0
        self._room = 0

    def read(self, key: str) -> bytes | None:
        """Return the payload stored under ``key``, or None; damaged files are removed with a warning."""
        try:
            with self._open_directory(create=False) as folder:
                if folder is None:
                    return None
                content = _read_file(folder, key + _SUFFIX)
                if content is None:
                    return None
                payload = _payload(content, key)
                if payload is None:
                    self.discard(key)
                    return None
                with suppress(OSError):  # the file system may be read-only
                    os.utime(key + _SUFFIX, dir_fd=folder, follow_symlinks=False)
                return payload
        except OSError as error:
            self._warn(f"cannot read: {error.strerror or error}")
            return None

    def write(self, key: str, payload: bytes, max_bytes: int) -> bool:
        """Store ``payload`` atomically; return whether it was stored.

        If the files together exceed ``max_bytes``, the oldest are dropped.
        """
        body = key.encode() + payload
        content = _MAGIC + hashlib.sha256(body).digest() + body
        if len(content) > max_bytes:
            return False
        try:
            with self._open_directory(create=True) as folder:
                if folder is None:
                    return False
                _write_file(folder, key + _SUFFIX, content)
                self._room -= len(content)
                if self._room < 0 or self._bound != max_bytes:
                    self._bound, self._room = max_bytes, (max_bytes - _evict(folder, max_bytes)) // _WRITERS
                return True
        except OSError as error:
            self._warn(f"cannot write: {error.strerror or error}")
            return False

    def discard(self, key: str) -> None:
        """Remove a damaged file with a warning; its program is compiled again."""
        warnings.warn(
            f"the cached program {key[:12]}… in {self.directory} is damaged; it is compiled again",
            CacheWarning,
            stacklevel=2,
        )
        try:
            with self._open_directory(create=False) as folder:
                if folder is not None:
                    os.unlink(key + _SUFFIX, dir_fd=folder)
        except OSError as error:
            self._warn(f"cannot remove a damaged file: {error.strerror or error}")

    def problem(self) -> str | None:
        """Return why the directory would not be used now, or None if it would be, or could be created."""
        try:
            status = os.stat(self.directory, follow_symlinks=False)
        except FileNotFoundError:
            existing = next(parent for parent in self.directory.absolute().parents if parent.exists())
            return None if os.access(existing, os.W_OK | os.X_OK) else f"you cannot write to {existing}"
        except OSError as error:
            return f"cannot read: {error.strerror or error}"
        if not stat.S_ISDIR(status.st_mode):
            return "it is not a directory"
        writable = os.access(self.directory, os.W_OK | os.X_OK)
        return _refusal(status) or (None if writable else "you cannot write to it")

    def usage(self) -> tuple[int, int]:
        """Return the number of stored programs and their total bytes."""
        sizes = [file.stat().st_size for file in self.directory.glob(f"*{_SUFFIX}")]
        return len(sizes), sum(sizes)

    @contextmanager
    def _open_directory(self, *, create: bool) -> Iterator[int | None]:
        """Yield a descriptor of the directory; None if it is missing or (with a warning) not safe to use."""
        if create:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folder = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            yield None
            return
        try:
            refusal = _refusal(os.fstat(folder))
            if refusal is not None:
                self._warn(refusal)
            yield None if refusal else folder
        finally:
            os.close(folder)

    def _warn(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the compilation cache {self.directory} is not used: {what}\n"
                "  next: set TORCHSTONE_CACHE_DIR to a directory that only you can write"
                " (or TORCHSTONE_CACHE=0)",
                CacheWarning,
                stacklevel=4,
            )


def _refusal(status: os.stat_result) -> str | None:
    """Return why a directory or file with this status must not be trusted, or None."""
    if status.st_uid != os.getuid():
        return f"it belongs to user {status.st_uid}, not to you"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _payload(content: bytes, key: str) -> bytes | None:
    """Return the payload in a file's content, or None if it is damaged or belongs to another key."""
    start = len(_MAGIC) + _DIGEST_BYTES
    body = content[start:]
    intact = content.startswith(_MAGIC) and hashlib.sha256(body).digest() == content[len(_MAGIC) : start]
    return body[len(key) :] if intact and body.startswith(key.encode()) else None


def _read_file(folder: int, name: str) -> bytes | None:
    try:
        # Without O_NONBLOCK, opening a named pipe would block until there is a writer.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        return None
    with open(file, "rb") as stream:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or _refusal(status):
            return b""
        return stream.read()


def _write_file(folder: int, name: str, content: bytes) -> None:
    """Write the file ``name`` completely or not at all."""
    temporary = f"{name}.{os.getpid()}.{threading.get_ident()}{_TEMPORARY}"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=folder)
    try:
        with open(file, "wb") as stream:
            stream.write(content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        _unlink_if_there(folder, temporary)
        raise


def _evict(folder: int, max_bytes: int) -> int:
    """Drop the oldest files if all together exceed ``max_bytes``; return how many bytes are left."""
    with os.scandir(folder) as entries:
        found = [entry for entry in entries if entry.name.endswith((_SUFFIX, _TEMPORARY))]
        files = [
            (status.st_mtime_ns, status.st_size, entry.name)
            for entry in found
            for status in [entry.stat(follow_symlinks=False)]
        ]
    total = sum(size for _, size, _ in files)
    if total <= max_bytes:
        return total
    for _, size, name in sorted(files):
        _unlink_if_there(folder, name)
        total -= size
        if total <= max_bytes - max_bytes // _SLACK:
            break
    return total


def _unlink_if_there(folder: int, name: str) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
