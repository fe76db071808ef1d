"""Refuses to run programs in forked processes, which lack the threads that an engine's client started.

A new client in the child of ``os.fork`` does not help: XLA keeps its threads for the whole process, and the
child would wait forever for the threads that it lacks. So everything that needs them raises an error.
"""

from __future__ import annotations

import os

from ..errors import EngineError

_started = False
threads_lost = False
"""Whether this process was forked from one in which a client had already started its threads."""


def threads_start() -> None:
    """Record that a client is about to start its threads. Call this before a client is made."""
    global _started
    _started = True


def refuse_lost_threads() -> None:
    """Raise :class:`EngineError` if a program would wait for threads that this process does not have."""
    if threads_lost:
        raise EngineError(
            "programs cannot be compiled or run in this process: it was forked after its parent had "
            "started an engine, and a fork does not copy the engine's threads",
            hint='start the child with the "spawn" method (multiprocessing.get_context("spawn")), '
            "or fork before anything is compiled",
        )


def _in_child() -> None:
    global threads_lost
    threads_lost = _started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
