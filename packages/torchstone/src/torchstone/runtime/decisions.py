"""Choices between several ways to compute the same thing, made once by measurement and stored on disk.

A question names what is computed and its sizes. Its answer is valid for one machine and one set of
versions, so these are part of the key under which the compilation cache stores it. A candidate that
raises, or whose results differ from the default's, is dropped and not tried again. Not here: what the
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
"""Prepares a measurement: returns a function that computes once and returns the results."""

_VERSION = 4
"""Part of the keys: increase it whenever the way in which candidates are measured changes."""
_ROUNDS, _LEAST_ROUNDS = 6, 3
"""The maximum number of rounds, and the minimum; in each round every candidate runs a block of calls."""
_BLOCK_S, _CALLS = 5e-3, 64
"""How long a block of calls takes, in seconds, and the maximum number of calls in it."""
_CLEAR = 1.2
"""If one candidate is this many times as fast as the others, :data:`_LEAST_ROUNDS` rounds are enough."""
_SETTLING, _LEAST_CALLS, _TURN_S = 2, 2, 50e-3
"""For one turn: the first calls, which are not measured; the minimum of measured calls; their seconds."""
_SLOWER = (2.0, 1.2, 1.05, 1.05, 0.0)
"""After 1, 2, … turns, a candidate is left out if it is more than this many times as slow as the fastest."""
_KEPT = 4096
"""How many answers are kept in memory."""


@dataclass(frozen=True)
class Decision:
    """The candidate that was ``chosen``.

    ``seconds`` has the time of one call of each measured candidate, and ``dropped`` the reason why each other
    candidate was dropped.
    """

    chosen: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


class Decisions:
    """The answers of one engine. ``disk`` returns the cache that they are stored in now, or None."""

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
        """Choose the fastest of the ``candidates``; the first one is the default, which the others must beat.

        Another one is chosen if it is more than ``gain`` times as fast, saves more than ``handover_s``
        seconds, and its results ``agree`` with the default's. Measuring ends after ``budget_s`` seconds. The
        answer is not stored on disk if no candidate was measured by then, or if other processes keep the
        machine busy. Then the next process measures again.
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
        """Like :meth:`best`, for work that must not be repeated: the ``candidates`` take turns in doing it.

        Candidates in ``allowed`` are preferred to the default, and may be that many times as slow.
        """
        key = self._key(question)
        turns = Turns(candidates, handover_s, gain, lambda found: self._keep(key, found), allowed or {})
        turns.decision = self._kept(key, candidates)
        return turns

    def _key(self, question: Mapping[str, Any]) -> str:
        asked = {"version": _VERSION, "machine": self._machine, "question": question}
        return digest([b"decision", json.dumps(asked, sort_keys=True).encode()])

    def _kept(self, key: str, candidates: Container[str]) -> Decision | None:
        """Return the answer on disk, if it chose one of the ``candidates``; else None."""
        disk = self._disk()
        payload = None if disk is None else disk.read(key)
        found = None if payload is None else Decision(**json.loads(payload))
        return found if found is not None and found.chosen in candidates else None

    def _keep(self, key: str, found: Decision) -> None:
        disk = self._disk()
        if disk is not None and found.seconds and not _is_busy():
            disk.write(key, json.dumps(asdict(found)).encode(), self._max_bytes())


class Turns:
    """Candidates that take turns in doing work that must not be repeated, until one is chosen.

    A turn is a block of calls. For each call, let the candidate :attr:`next` do the work, then report with
    :meth:`took` how long it took. The first candidate is the default. Only one thread may use this at a time.
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
        """None until a candidate is chosen."""
        self._candidates = list(candidates)
        self._default = candidates[0]
        self._handover_s, self._gain, self._keep, self._allowed = handover_s, gain, keep, dict(allowed)
        self._seconds: dict[str, float] = {}
        self._dropped: dict[str, str] = {}
        self._block: list[float] = []
        self._place = self._rounds = 0

    @property
    def next(self) -> str:
        """The candidate whose turn it is, or the chosen one once there is one."""
        return self._candidates[self._place] if self.decision is None else self.decision.chosen

    def took(self, seconds: float) -> None:
        """Report that the work took :attr:`next` this many ``seconds``."""
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

    def allow(self, candidate: str, factor: float) -> None:
        """Prefer ``candidate`` to the default, even if it is ``factor`` times as slow."""
        self._allowed[candidate] = factor

    def drop(self, why: str) -> None:
        """Drop :attr:`next`, which must not be the default; ``why`` is the reason."""
        self._dropped[self.next] = why
        self._seconds.pop(self.next, None)
        self._candidates.remove(self.next)
        self._block.clear()
        self._place = 0
        if len(self._candidates) == 1:
            self._decide()

    def _close(self) -> None:
        """End a round: leave out the candidates that are too slow, and decide if only one is left."""
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
    """Whether more processes want to run than there are processors, which makes measured times unreliable."""
    return os.getloadavg()[0] > (os.cpu_count() or 1) + 1


def _chosen(
    seconds: Mapping[str, float],
    default: str,
    handover_s: float,
    gain: float,
    allowed: Mapping[str, float] = MappingProxyType({}),
) -> str:
    """Return the fastest candidate.

    Before the comparison, times of candidates other than the default grow by ``gain`` or ``handover_s``,
    whichever is more. Those of candidates in ``allowed`` are divided by the factor there instead.
    """

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
        for name, run in list(runs.items()):  # blocks of calls: candidates disturb each other's threads
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
    """Return the seconds of one call, measured over a block of calls after one or two warm-up calls."""
    run()
    started = time.perf_counter()
    run()
    calls = min(_CALLS, int(_BLOCK_S / (time.perf_counter() - started + 1e-9)))
    if calls > 1:
        started = time.perf_counter()
        for _ in range(calls):
            run()
    return (time.perf_counter() - started) / max(calls, 1)
