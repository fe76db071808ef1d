"""Keeps the rest of the process from slowing programs on the embedded CPU down.

PyTorch's waiting OpenMP threads are ended before long programs, and glibc is told to keep freed memory. Both
affect the whole process, so each has a setting that turns it off. With another C library or OpenMP library,
nothing happens.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

from ..config import config

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
_KEPT_BYTES = 1 << 30
_UNLIMITED = -1
_MAPPED_BLOCKS = 65536
"""glibc's own value of ``M_MMAP_MAX``."""
_LARGEST_THRESHOLD_OF_OLD = 32 << 20
"""The largest threshold that glibc before 2.35 accepts."""

_MUCH = {"flops": 2e8, "bytes accessed": 5e7}
"""From this cost on, a program takes about a millisecond or more, which is many times the cost of a pause."""

_PAUSE_SOFT = 1


@functools.cache
def keep_freed_memory() -> bool:
    """Let glibc keep up to 1 GiB of freed memory for the next call; return whether it does.

    The first call decides. By default glibc returns large blocks to the system, which must then
    clear every page of a program's results again. This takes up to a fifth of a training step.
    """
    if not config.keep_memory or not sys.platform.startswith("linux"):
        return False
    adjust = getattr(ctypes.CDLL(None), "mallopt", None)
    if adjust is None:
        return False
    large = any(adjust(_M_MMAP_THRESHOLD, size) for size in (_KEPT_BYTES, _LARGEST_THRESHOLD_OF_OLD))
    return bool(large and adjust(_M_TRIM_THRESHOLD, _KEPT_BYTES))


_lock = threading.RLock()  # the garbage collector may end a program while a thread holds it
_large_programs: set[int] = set()
"""The identities of the programs for which all memory is kept."""


def keep_memory_of(program: object, size: int) -> None:
    """Let glibc keep all freed memory while ``program`` exists, if a call allocates more than 1 GiB.

    ``size`` is what a call allocates, in bytes. Without this, glibc asks the system for such a block in every
    call and returns it afterwards, and clearing its pages can take as long as the program itself. After the
    last of these programs, the limit of :func:`keep_freed_memory` holds again.
    """
    if size <= _KEPT_BYTES or not keep_freed_memory():
        return
    with _lock:
        _large_programs.add(id(program))
        _keep_all(True)
    weakref.finalize(program, _end_of_large_program, id(program)).atexit = False


def _end_of_large_program(identity: int) -> None:
    with _lock:
        _large_programs.discard(identity)
        _keep_all(bool(_large_programs))


def _keep_all(everything: bool) -> None:
    library = ctypes.CDLL(None)
    library.mallopt(_M_MMAP_MAX, 0 if everything else _MAPPED_BLOCKS)
    library.mallopt(_M_TRIM_THRESHOLD, _UNLIMITED if everything else _KEPT_BYTES)
    if not everything:
        library.malloc_trim(0)


def is_long(cost: Mapping[str, float]) -> bool:
    """Whether a program of this cost (XLA's estimate) runs long enough for :func:`pause_openmp` to pay."""
    return any(cost.get(name, 0.0) >= least for name, least in _MUCH.items())


@functools.cache
def openmp_pause() -> Callable[[], object] | None:
    """Return a function that ends the waiting threads of PyTorch's GNU OpenMP; None without that library.

    After an operator, these threads spin for milliseconds while they wait for the next one, and
    occupy a core that XLA's threads need. Only the pool of the calling thread is ended; the next
    operator starts a new one. Inside a parallel region the library refuses, and nothing happens.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.__file__ is None:
        return None
    for path in sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*")):
        try:
            # Use only a library that is loaded already: another copy would have its own threads.
            pause = ctypes.CDLL(str(path), mode=os.RTLD_NOLOAD | os.RTLD_LAZY).omp_pause_resource_all
        except (OSError, AttributeError):
            continue
        return functools.partial(pause, _PAUSE_SOFT)
    return None


def pause_openmp() -> None:
    """End waiting OpenMP threads, if :data:`config.pause_openmp` says so and PyTorch uses several."""
    pause = openmp_pause()
    if pause is not None and config.pause_openmp and sys.modules["torch"].get_num_threads() > 1:
        pause()
