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
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from .. import spans
from .cache import DiskCache, MemoryCache, digest

Run = Callable[[], Sequence[Any]]
Candidate = Callable[[], Run]
"""Prepares what is to be measured: a function that computes once and returns its results."""

_VERSION = 3
"""Part of the keys: raise it with every change of how candidates are measured."""
_ROUNDS, _LEAST_ROUNDS = 6, 3
_BLOCK_S, _CALLS = 5e-3, 64
"""How long a block of calls takes, in seconds, and the most calls in one."""
_CLEAR = 1.2
"""Where one is so many times as fast as the others, :data:`_LEAST_ROUNDS` rounds tell it."""
_SETTLING, _LEAST_CALLS, _TURN_S = 2, 2, 50e-3
"""The first calls of a turn, which are not measured, the least that are, and the seconds of a turn."""
_SLOWER = (2.0, 1.2, 1.05, 1.05, 0.0)
"""A candidate that is so many times as slow as the fastest after 1, 2, … turns gets no more of them."""
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
        key = self._key(question)

        def answer() -> Decision:
            found = self._kept(key, candidates)
            if found is None:
                with spans.span("compile", f"tuning: {question['what']}"):
                    found = _measured(candidates, agree, handover_s, budget_s, gain)
                self._keep(key, found)
            return found

        return self._answers.get(key, answer, _KEPT)[0]

    def in_turns(
        self,
        question: Mapping[str, Any],
        candidates: Sequence[str],
        *,
        handover_s: float,
        gain: float = 1.0,
        allowed: Mapping[str, float] | None = None,
    ) -> Turns:
        """As :meth:`best`, for work that is done once: the ``candidates`` take turns with it.

        Those in ``allowed`` are preferred to the default, and may be so many times as slow.
        """
        key = self._key(question)
        turns = Turns(candidates, handover_s, gain, lambda found: self._keep(key, found), allowed or {})
        turns.decision = self._kept(key, candidates)
        return turns

    def _key(self, question: Mapping[str, Any]) -> str:
        asked = {"version": _VERSION, "machine": self._machine, "question": question}
        return digest([b"decision", json.dumps(asked, sort_keys=True).encode()])

    def _kept(self, key: str, candidates: Container[str]) -> Decision | None:
        """The answer on disk, if it is one of the ``candidates``."""
        disk = self._disk()
        payload = None if disk is None else disk.read(key)
        found = None if payload is None else Decision(**json.loads(payload))
        return found if found is not None and found.chosen in candidates else None

    def _keep(self, key: str, found: Decision) -> None:
        disk = self._disk()
        if disk is not None and found.seconds and not _is_busy():
            disk.write(key, json.dumps(asdict(found)).encode(), self._max_bytes())


class Turns:
    """Candidates that take turns with work that is done once, in blocks of calls, until one is chosen.

    Let :attr:`next` do the work, then say by :meth:`took` how long it took. The first candidate is the
    default. Safe for one thread at a time.
    """

    def __init__(
        self,
        candidates: Sequence[str],
        handover_s: float,
        gain: float,
        keep: Callable[[Decision], None],
        allowed: Mapping[str, float] = MappingProxyType({}),
    ) -> None:
        self.decision: Decision | None = None
        """None until one is chosen."""
        self._candidates = list(candidates)
        self._default = candidates[0]
        self._handover_s, self._gain, self._keep, self._allowed = handover_s, gain, keep, allowed
        self._seconds: dict[str, float] = {}
        self._dropped: dict[str, str] = {}
        self._block: list[float] = []
        self._place = self._rounds = 0

    @property
    def next(self) -> str:
        """The candidate whose turn it is; the one that was chosen, once one is."""
        return self._candidates[self._place] if self.decision is None else self.decision.chosen

    def took(self, seconds: float) -> None:
        """The work took :attr:`next` so many ``seconds``."""
        if self.decision is not None:
            return
        self._block.append(seconds)
        measured = self._block[_SETTLING:]
        if len(measured) < _LEAST_CALLS or (sum(measured) < _TURN_S and len(measured) < _CALLS):
            return
        best = self._seconds.get(self.next, float("inf"))
        self._seconds[self.next] = min(best, sum(measured) / len(measured))
        self._block.clear()
        self._place = (self._place + 1) % len(self._candidates)
        if self._place == 0:
            self._close()

    def drop(self, why: str) -> None:
        """Ask :attr:`next`, which is not the default, no more."""
        self._dropped[self.next] = why
        self._seconds.pop(self.next, None)
        self._candidates.remove(self.next)
        self._block.clear()
        self._place = 0
        if len(self._candidates) == 1:
            self._decide()

    def _close(self) -> None:
        """Leave out who has lost by the end of a round."""
        fastest, slower = min(self._seconds.values()), _SLOWER[self._rounds]
        self._rounds += 1
        self._candidates = [one for one in self._candidates if self._seconds[one] <= slower * fastest]
        if len(self._candidates) <= 1:
            self._decide()

    def _decide(self) -> None:
        chosen = _chosen(self._seconds, self._default, self._handover_s, self._gain, self._allowed)
        self.decision = Decision(chosen, dict(self._seconds), dict(self._dropped))
        self._keep(self.decision)


def _is_busy() -> bool:
    """Whether more processes want to run than there are processors: then times say little."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) + 1


def _chosen(
    seconds: Mapping[str, float],
    default: str,
    handover_s: float,
    gain: float,
    allowed: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """The fastest, if it is so much faster than the default, or not slower than it is ``allowed`` to be."""

    def judged(name: str) -> float:
        if name in allowed:
            return seconds[name] / allowed[name]
        return seconds[name] if name == default else max(seconds[name] * gain, seconds[name] + handover_s)

    return min(seconds, key=judged, default=default)


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
            if name == default:
                expected = results
            elif not agree(expected, results):
                dropped[name] = "its results differ"
                continue
        except Exception as error:  # noqa: BLE001  # whatever it is, the candidate is out
            dropped[name] = _described(error)
            if name == default:
                return Decision(default, dropped=dropped)
            continue
        runs[name] = run
        if time.perf_counter() > end:
            return Decision(default, dropped=dropped)
    seconds = dict.fromkeys(runs, float("inf"))
    for done in range(1, _ROUNDS + 1):
        for name, run in list(runs.items()):  # in blocks of calls: each disturbs the next one's threads
            try:
                seconds[name] = min(seconds[name], _timed(run))
            except Exception as error:  # noqa: BLE001
                dropped[name] = _described(error)
                if name == default:
                    return Decision(default, dropped=dropped)
                del runs[name], seconds[name]
        first, *others = sorted(seconds.values())
        if time.perf_counter() > end or (
            done >= _LEAST_ROUNDS and all(_CLEAR * first < one for one in others)
        ):
            break
    return Decision(_chosen(seconds, default, handover_s, gain), seconds, dropped)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


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
