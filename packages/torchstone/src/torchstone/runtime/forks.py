"""Forked processes: a child of ``os.fork`` has none of the threads that an engine's client started.

A new client does not help: XLA keeps its threads for the whole process, and a child would wait forever
for those that it lacks. So whatever would need them is refused.
"""

from __future__ import annotations

import os

from ..errors import EngineError

_started = False
threads_lost = False
"""Whether this process was forked from one in which a client had started its threads."""


def threads_start() -> None:
    """To be called before a client is made."""
    global _started
    _started = True


def refuse_lost_threads() -> None:
    """Raises :class:`EngineError` where a program would wait for threads that this process does not have."""
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
