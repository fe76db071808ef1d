"""Paired timing: candidates take turns, so that a drift of the machine affects all of them alike."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True)
class Row:
    """One line of a suite's table: the median seconds per call of each candidate, a requirement, and notes.

    ``baseline`` names the candidate that the ratios refer to. ``bound`` is the
    requirement in words, and ``held`` says whether this run met it (None: no requirement).
    """

    name: str
    seconds: Mapping[str, float]
    baseline: str
    bound: str = ""
    held: bool | None = None
    notes: Mapping[str, float | int | str] = field(default_factory=dict)

    def ratio(self, candidate: str) -> float:
        return self.seconds[candidate] / self.seconds[self.baseline]


def paired(
    candidates: Mapping[str, Callable[[], object]], *, budget_s: float = 2.0, rounds: int = 7
) -> dict[str, float]:
    """Return each candidate's median seconds per call in the rounds of :func:`rounds_of`."""
    samples = rounds_of(candidates, budget_s=budget_s, rounds=rounds)
    return {name: statistics.median(values) for name, values in samples.items()}


def rounds_of(
    candidates: Mapping[str, Callable[[], object]], *, budget_s: float, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds per call of each candidate, round by round.

    Every round runs each candidate for an equal share of ``budget_s``. Three calls come
    before and are not recorded. The first compiles, the second may measure what to run,
    and the third decides how many calls fill a share.
    """
    calls: dict[str, int] = {}
    for name, function in candidates.items():
        function()
        function()
        started = time.perf_counter()
        function()
        once = time.perf_counter() - started
        calls[name] = max(1, int(budget_s / rounds / len(candidates) / max(once, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, function in candidates.items():
            started = time.perf_counter()
            for _ in range(calls[name]):
                function()
            samples[name].append((time.perf_counter() - started) / calls[name])
    return samples


def once(function: Callable[[], object]) -> float:
    """Seconds of one call."""
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Run this thread, the threads that it starts, and eager PyTorch's operators on one core (on Linux)."""
    threads = torch.get_num_threads()
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    torch.set_num_threads(1)
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        if cores:
            os.sched_setaffinity(0, cores)


_KEEP = {"M_TRIM_THRESHOLD": (-1, 2**31 - 1), "M_TOP_PAD": (-2, 2**26), "M_MMAP_MAX": (-4, 0)}
"""Options of glibc's ``mallopt`` that make freed memory stay with the process."""


def keep_memory() -> None:
    """Make memory that this process frees from now on stay with it. Without glibc, nothing changes.

    Otherwise each call would get large arrays from the system anew. The system's work on their
    pages, up to three quarters of a call's time, would then hide the operator's.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        for option, value in _KEEP.values():
            library.mallopt(option, value)
