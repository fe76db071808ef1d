"""Where cases run, by name: processes of this machine, or the nodes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial

from ..backends.driver import BackendDriver
from .executor import DEFAULT_TIMEOUT_S
from .handle import DriverHandle, start_worker


@contextmanager
def opened(
    name: str, driver: BackendDriver, workers: int, timeout: float | None
) -> Iterator[tuple[Executor | None, int]]:
    """Yield the executor ``name`` and its number of processes; None as executor if runners make their own.

    ``workers`` of 1 means all CPUs of a cluster. Tasks left over from an interrupted run are canceled.
    """
    if name == "process":
        yield None, workers
        return
    from .ray_executor import RayExecutor

    executor = RayExecutor(
        workers if workers > 1 else None,
        timeout=timeout or DEFAULT_TIMEOUT_S,
        start=partial(start_worker, DriverHandle(driver)),
    )
    try:
        yield executor, executor.max_workers
    finally:
        executor.shutdown() if executor.idle else executor.kill()
