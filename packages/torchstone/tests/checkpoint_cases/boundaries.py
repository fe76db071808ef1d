"""Every step of a save that reaches the disk, and what can happen there: a kill, an error, a power cut.

The steps are the calls of ``os`` that change a disk or make it durable. Writing data counts as a step in
which half of it may be written.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

STEPS = ("mkdir", "pwrite", "fsync", "replace", "rename", "unlink", "rmdir")


@contextlib.contextmanager
def steps_seen(before: Callable[[str, Callable[..., Any], tuple[Any, ...]], None]) -> Iterator[None]:
    """Call ``before(name, function, arguments)`` ahead of each step inside, one step at a time."""
    real = {name: getattr(os, name) for name in STEPS}
    lock = threading.RLock()

    def watched(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with lock:
                before(name, real[name], arguments)
                return real[name](*arguments, **options)

        return call

    for name in STEPS:
        setattr(os, name, watched(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(os, name, function)


def killed_at(number: int, work: Callable[[], None]) -> bool:
    """Run ``work`` in a child that is killed ahead of step ``number``, or amid it if that step writes data.

    Return True if the child was killed, False if ``work`` ended before that step.
    """
    child = os.fork()
    if child == 0:
        left = number

        def before(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
            nonlocal left
            if left == 0:
                if name == "pwrite":
                    descriptor, data, at = arguments
                    with contextlib.suppress(OSError):  # half of a direct write may not be whole blocks
                        function(descriptor, data[: len(data) // 2], at)
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        try:
            with steps_seen(before):
                work()
        except BaseException:  # noqa: BLE001  # of a child that has no one to tell
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0, "the save failed in the child"
    return False


@contextlib.contextmanager
def failing_at(number: int, error: int) -> Iterator[list[str]]:
    """Make step ``number`` inside fail with the errno ``error``; put its name on the list when it does."""
    left, reached = number, list[str]()

    def before(name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            reached.append(name)
            raise OSError(error, os.strerror(error))

    with steps_seen(before):
        yield reached


class Disk:
    """Tracks what a power cut would leave of ``root``: the folders and files that ``fsync`` has made durable.

    :meth:`survivors` makes three images: the least that must be there; all names, but only synced data; and
    everything.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names: dict[int, dict[str, int]] = {}
        self._data: dict[int, bytes] = {}
        self._folders: set[int] = set()
        for path in [root, *root.rglob("*")]:
            self._sync(path)

    def _sync(self, path: Path) -> None:
        inode = path.stat().st_ino
        if path.is_dir():
            self._names[inode] = {one.name: one.stat().st_ino for one in path.iterdir()}
            self._folders |= {one.stat().st_ino for one in path.iterdir() if one.is_dir()}
        else:
            self._data[inode] = path.read_bytes()

    def before(self, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Note what an ``fsync`` makes durable. Pass this method to :func:`steps_seen`."""
        if name == "fsync":
            path = Path(os.readlink(f"/proc/self/fd/{arguments[0]}"))
            if path == self.root or self.root in path.parents:
                self._sync(path)

    def survivors(self, into: Path) -> list[Path]:
        """Write images of :attr:`root` after a power cut now to new folders in ``into``; return these."""
        least, names, everything = into / "least", into / "names", into / "everything"
        self._restore(self.root.stat().st_ino, least)
        self._copy(self.root, names)
        shutil.copytree(self.root, everything)
        return [least, names, everything]

    def _restore(self, inode: int, path: Path) -> None:
        path.mkdir(parents=True)
        for name, inner in self._names.get(inode, {}).items():
            if inner in self._folders:
                self._restore(inner, path / name)
            else:
                (path / name).write_bytes(self._data.get(inner, b""))

    def _copy(self, source: Path, path: Path) -> None:
        path.mkdir(parents=True)
        for one in source.iterdir():
            if stat.S_ISDIR(one.stat().st_mode):
                self._copy(one, path / one.name)
            else:
                (path / one.name).write_bytes(self._data.get(one.stat().st_ino, b""))
