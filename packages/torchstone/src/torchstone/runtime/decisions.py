"""Choices between ways to compute the same, made once by measurement and remembered on disk.

A question names what is computed and its sizes. Its answer holds for one machine and one set of
versions, which are part of the key under which the compilation cache keeps it. A candidate that raises,
or whose results differ from those of the default, is dropped and never asked again. Not here: what the
candidates are.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from .. import spans
from .cache import DiskCache, MemoryCache, digest

Run = Callable[[], Sequence[Any]]
Candidate = Callable[[], Run]
"""Prepares what is to be measured: a function that computes once and returns its results."""

_VERSION = 2
"""Part of the keys: raise it with every change of how candidates are measured."""
_ROUNDS, _LEAST_ROUNDS = 6, 3
_BLOCK_S, _CALLS = 5e-3, 64
"""How long a block of calls takes, in seconds, and the most calls in one."""
_CLEAR = 1.2
"""Where one is so many times as fast as the others, :data:`_LEAST_ROUNDS` rounds tell it."""
_KEPT = 4096
"""Answers kept in memory."""


@dataclass(frozen=True)
class Decision:
    """The candidate that was ``chosen``; ``seconds`` of one call of each, and why others were ``dropped``."""

    chosen: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


class Decisions:
    """The answers of one engine. ``disk`` gives the cache to keep them in now, or None."""

    def __init__(
        self, machine: Mapping[str, Any], disk: Callable[[], DiskCache | None], max_bytes: Callable[[], int]
    ) -> None:
        self._machine, self._disk, self._max_bytes = machine, disk, max_bytes
        self._answers: MemoryCache[Decision] = MemoryCache()

    def best(
        self,
        question: Mapping[str, Any],
        candidates: Mapping[str, Candidate],
        *,
        agree: Callable[[Sequence[Any], Sequence[Any]], bool],
        handover_s: float,
        budget_s: float,
        gain: float = 1.0,
    ) -> Decision:
        """The fastest of the ``candidates``; the first one is the default, which the others must beat.

        Another one is chosen if it is more than ``gain`` times as fast, saves more than ``handover_s``, and
        its results ``agree`` with the default's. Measuring ends after ``budget_s`` seconds. Where no
        candidate was measured by then, or other processes keep the machine busy, the next process measures
        again.
        """
        asked = {"version": _VERSION, "machine": self._machine, "question": question}
        key = digest([b"decision", json.dumps(asked, sort_keys=True).encode()])

        def answer() -> Decision:
            disk = self._disk()
            found = None if disk is None else _parsed(disk.read(key), candidates)
            if found is None:
                with spans.span("compile", f"tuning: {question['what']}"):
                    found = _measured(candidates, agree, handover_s, budget_s, gain)
                if disk is not None and found.seconds and not _is_busy():
                    disk.write(key, json.dumps(asdict(found)).encode(), self._max_bytes())
            return found

        return self._answers.get(key, answer, _KEPT)[0]


def _is_busy() -> bool:
    """Whether more processes want to run than there are processors: then times say little."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) + 1


def _parsed(payload: bytes | None, candidates: Mapping[str, Candidate]) -> Decision | None:
    if payload is None:
        return None
    found = Decision(**json.loads(payload))
    return found if found.chosen in candidates else None


def _measured(
    candidates: Mapping[str, Candidate],
    agree: Callable[[Sequence[Any], Sequence[Any]], bool],
    handover_s: float,
    budget_s: float,
    gain: float,
) -> Decision:
    default, end = next(iter(candidates)), time.perf_counter() + budget_s
    runs: dict[str, Run] = {}
    dropped: dict[str, str] = {}
    expected: Sequence[Any] = ()
    for name, prepare in candidates.items():
        try:
            run = prepare()
            results = run()
        except Exception as error:  # noqa: BLE001  # whatever it is, the candidate is out
            dropped[name] = f"{type(error).__name__}: {error}"
            if name == default:
                return Decision(default, dropped=dropped)
            continue
        if name == default:
            expected = results
        elif not agree(expected, results):
            dropped[name] = "its results differ"
            continue
        runs[name] = run
        if time.perf_counter() > end:
            return Decision(default, dropped=dropped)
    seconds = dict.fromkeys(runs, float("inf"))
    for done in range(1, _ROUNDS + 1):
        for name, run in runs.items():  # in blocks of calls: each disturbs the next one's threads
            seconds[name] = min(seconds[name], _timed(run))
        first, *others = sorted(seconds.values())
        if time.perf_counter() > end or (
            done >= _LEAST_ROUNDS and all(_CLEAR * first < one for one in others)
        ):
            break
    fastest = min(seconds, key=seconds.__getitem__)
    other_wins = max(seconds[fastest] * gain, seconds[fastest] + handover_s) < seconds[default]
    chosen = fastest if other_wins else default
    return Decision(chosen, seconds, dropped)


def _timed(run: Run) -> float:
    """Seconds of one call, from a block of calls after one or two that settle it."""
    run()
    started = time.perf_counter()
    run()
    calls = min(_CALLS, int(_BLOCK_S / (time.perf_counter() - started + 1e-9)))
    if calls > 1:
        started = time.perf_counter()
        for _ in range(calls):
            run()
    return (time.perf_counter() - started) / max(calls, 1)
