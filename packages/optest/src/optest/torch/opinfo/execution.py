"""Runs one group as a task: makes its cases, asks the driver, judges the answers, and returns records.

Not here: processes, crashes and what happens to records (``optest.running``).
"""

from __future__ import annotations

import hashlib
import shlex
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...backends.driver import Answer, BackendDriver, CallDriver
from ...core.case import BackendTarget
from ...core.origin import Origin
from ...core.result import CaseResult, Status
from ...errors import BackendError
from ...running.execution import tail
from ...running.task import Task, TaskOutcome, add_seconds
from ..internals import overloads_seen
from .asking import asked
from .bounded import formed
from .calls import FORWARD, copied, evaluate
from .classes import Class, class_of
from .databases import entries_of
from .distribution import by_distribution, is_random, one_value
from .groups import Group
from .phases import Case, planned
from .turns import by_turns
from .values import values_of
from .verdict import Fields, array_of, by_error, by_form, by_value, mismatch

_ROUNDS = 10
"""How often each program runs in the phases ``perf`` and ``stress``."""


@dataclass(frozen=True)
class Request(Task):
    """A task that runs a group on ``target``: all its samples, those in ``numbers``, or ``most`` of them.

    If ``turn`` is given, only the first ``turn`` of these run, and the rest become further requests:
    a task has one timeout, and if it dies its results are lost.
    """

    group: Group
    target: BackendTarget
    numbers: tuple[int, ...] | None = None
    most: int | None = None
    turn: int | None = None
    tensors: tuple[torch.Tensor, ...] | None = field(default=None, compare=False)
    """The tensors that the request's single sample runs on, in place of its own."""

    @property
    def key(self) -> str:
        rest = repr((self.target, self.numbers, self.most))
        return f"{self.group.case_id('group')}-{hashlib.sha256(rest.encode()).hexdigest()[:8]}"

    def run(self, driver: BackendDriver) -> TaskOutcome:
        if not isinstance(driver, CallDriver):
            raise BackendError(f"the driver {driver.name!r} does not answer calls of PyTorch's tensors")
        torch.set_num_threads(1)
        return run_group(driver, self)

    def smaller(self) -> Sequence[Request]:
        """Return requests for each half of the samples that ran, and requests for the rest."""
        every = self._numbers()
        if len(every) < 2:
            return ()
        numbers, left = every[: self.turn], every[len(every[: self.turn]) :]
        middle = len(numbers) // 2
        halves = (numbers[:middle], numbers[middle:])
        return [*(replace(self, numbers=one) for one in halves if one), *self.turns(left)]

    def _numbers(self) -> tuple[int, ...]:
        return tuple(one.number for one in planned(self.group, self.numbers, self.most))

    def turns(self, numbers: Sequence[int]) -> list[Request]:
        """Return requests for the samples ``numbers``, with at most ``turn`` samples each."""
        size = self.turn or max(len(numbers), 1)
        starts = range(0, len(numbers), size)
        return [replace(self, numbers=tuple(numbers[start : start + size])) for start in starts]

    def only(self, results: Sequence[CaseResult]) -> Request:
        samples = [number_of(one) for one in results]
        numbers = tuple(one for one in samples if isinstance(one, int))
        return replace(self, numbers=numbers) if len(numbers) == len(samples) else self  # the group failed

    def record(self, status: Status, reason: str, **fields: Any) -> CaseResult:
        died = status in (Status.CRASHED, Status.TIMED_OUT)
        alone = self._numbers() if died else ()
        number = alone[0] if len(alone) == 1 else "samples" if died else "group"
        return record(self, number, None, "", {"status": status, "reason": reason, **fields})

    def rerun(self, result: CaseResult) -> str:
        return _command(self, number_of(result))


def number_of(result: CaseResult) -> int | str:
    """Return the number of the sample, or the word that its record has instead, such as ``group``."""
    assert result.origin is not None, "the record of a suite's case says where it comes from"
    return result.origin.sample


def run_group(driver: CallDriver, request: Request) -> TaskOutcome:
    """Run the cases of a group; a failure of a case is part of its record."""
    group = request.group
    outcome = TaskOutcome()
    declared = class_of(group.suite, group.entry, group.phase)
    if declared is not None and declared.kind == "untestable":
        fields = {"status": Status.SKIPPED, "reason": f"untestable: {declared.reason}"}
        outcome.results.append(record(request, "untestable", None, "untestable", fields))
        return outcome
    started = time.perf_counter()
    try:
        plans = planned(group, request.numbers, request.most)
        cases = [one.make(request.tensors) for one in plans[: request.turn]]
    except Exception as error:  # noqa: BLE001  # the database's own code
        fields = {
            "status": Status.SKIPPED,
            "reason": f"PyTorch's samples fail: {type(error).__name__}: {error}",
        }
        outcome.results.append(record(request, "samples", None, "untestable", fields))
        return outcome
    if not cases:
        fields = {"status": Status.SKIPPED, "reason": "PyTorch has no samples of this for the CPU"}
        outcome.results.append(record(request, "samples", None, "untestable", fields))
    outcome.left = request.turns([one.number for one in plans[len(cases) :]])
    if declared is not None and group.phase != "automatic_dynamic":  # each turn gets its form there
        cases = [formed(group, case) for case in cases]
    outcome.seconds["samples and eager"] += time.perf_counter() - started
    for case, form, fields in _judged(driver, group, cases, declared, outcome.seconds):
        outcome.results.append(record(request, case.number, case, form, fields))
    return outcome


Judged = Iterable[tuple[Case, str, Fields]]


def _judged(
    driver: CallDriver,
    group: Group,
    cases: Sequence[Case],
    declared: Class | None,
    seconds: dict[str, float],
) -> Judged:
    """Yield each case with its class and the fields of its record."""
    kind = declared.kind if declared else ""
    for case in cases:
        if case.skipped:
            yield case, "", {"status": Status.SKIPPED, "reason": case.skipped}
    left = [case for case in cases if not case.skipped]
    if group.phase == "automatic_dynamic":
        for case, fields in zip(left, by_turns(driver, group, left, kind), strict=True):
            yield case, _class_of_case(case, kind), fields
        return
    if kind == "random":
        random = [case for case in left if case.raises is None and is_random(case)]
        started = time.perf_counter()
        for case, fields in zip(random, by_distribution(driver, random), strict=True):
            yield case, "random", fields
        seconds["distributions"] += time.perf_counter() - started
        left = [case for case in left if case not in random]
    repeats = _REPEATS.get(group.phase, 1)
    answers = asked(driver, [case.call for case in left], repeats)
    for answer in answers:
        add_seconds(seconds, answer.seconds)
    started = time.perf_counter()
    for case, answer in zip(left, answers, strict=True):
        runs = _runs(case, answer, repeats)
        fields = _verdict(case, replace(answer, outputs=runs[0]) if runs else answer, kind)
        if fields["status"] is Status.PASSED and len(runs) > 1 and kind != "uninitialised":
            fields |= _repeated(runs, kind)
        if fields["status"] is Status.PASSED and group.phase == "perf":
            fields["reason"] = _times(answer)
        yield case, _class_of_case(case, kind) or answer.form, {**fields, "duration_s": _own(answer)}
    seconds["judging"] += time.perf_counter() - started


_FORMED = ("bounded", "determined")
"""Classes of entries in which only some samples need a special form."""


def _class_of_case(case: Case, kind: str) -> str:
    return kind if kind not in _FORMED or case.formed else ""


_REPEATS = {"determinism": 2, "perf": _ROUNDS, "stress": _ROUNDS}
"""How often each program runs, by phase."""


def _runs(case: Case, answer: Answer, repeats: int) -> list[Sequence[Any]]:
    """Return the outputs of an answer, one list per run; empty if there are none."""
    outputs, size = answer.outputs, len(case.expected)
    if outputs is None:
        return []
    if not size or len(outputs) != size * repeats:
        return [outputs]  # the verdict reports the wrong number
    return [outputs[start : start + size] for start in range(0, len(outputs), size)]


def _own(answer: Answer) -> float:
    """Return the seconds that the backend took, without PyTorch's capture."""
    return sum(taken for name, taken in answer.seconds.items() if name != "capture")


def _verdict(case: Case, answer: Answer, kind: str) -> Fields:
    if case.raises is not None:
        return by_error(case, answer)
    if answer.unsupported:
        return {"status": Status.UNSUPPORTED, "reason": answer.unsupported}
    if answer.outputs is None:
        error = answer.error
        text = answer.error_text
        trace = "" if error is None else tail("".join(traceback.format_exception(error)))
        return {"status": Status.ERROR, "reason": text, "stderr_tail": trace}
    try:
        fields = by_form(case, answer.outputs) if kind == "uninitialised" else by_value(case, answer.outputs)
    except Exception as error:  # noqa: BLE001  # such as a dtype that NumPy has no arrays of
        return {"status": Status.ERROR, "reason": f"the comparison raised {type(error).__name__}: {error}"}
    if fields["status"] is Status.PASSED and answer.fallback:
        return {**fields, "status": Status.FALLBACK, "reason": answer.fallback_text}
    return fields


def _times(answer: Answer) -> str:
    """Return a text that says how long each part of an answer took, in milliseconds over all runs."""
    parts = (f"{name} {1000 * taken:.3g} ms" for name, taken in answer.seconds.items())
    return f"{_ROUNDS} runs: {', '.join(parts)}"


_LOOSE = ("random", "determined")
"""Classes whose bits are not determined: even eager's vary with the random numbers or the memory layout."""


def _repeated(runs: Sequence[Sequence[Any]], kind: str) -> Fields:
    """Check that further runs repeat the bits of the first run, or its values if bits may differ."""
    for number, other in enumerate(runs[1:], 2):
        for place, (one, two) in enumerate(zip(runs[0], other, strict=True)):
            first, again = array_of(one), array_of(two)
            if kind in _LOOSE and not one_value([first, again]):
                return mismatch(f"output{place}: run {number} gave other values than the first")
            if kind not in _LOOSE and first.tobytes() != again.tobytes():
                return mismatch(f"output{place}: run {number} gave other bits than the first")
    return {}


_DECLARING = (0, "untestable", "samples", "group")
"""The samples whose forward records also say which dtypes and phases the entry has.

A number is a sample; a word stands for a whole group.
"""


def record(
    request: Request, number: int | str, case: Case | None, form: str, fields: Mapping[str, Any]
) -> CaseResult:
    """The record of one case of a group."""
    group, target = request.group, request.target
    tensors = case.call.tensors if case else ()
    declares = group.phase == "forward" and number in _DECLARING
    origin = Origin(
        suite=group.suite,
        sample=number,
        note=case.note if case else "",
        form=form,
        overloads=tuple(overloads_of(case)) if case else (),
        among=case.among if case and number == 0 else 0,  # once: coverage compares it with those that ran
        values=values_of(case) if case and fields["status"].failed else "",
        declared=entries_of(group.suite)[group.entry].declared() if declares else None,
    )
    return CaseResult(
        case_id=group.case_id(number),
        op=group.entry,
        category=group.family,
        dtypes=(group.dtype,),
        shapes={f"input{place}": tuple(one.shape) for place, one in enumerate(tensors)},
        attributes={},
        phase=group.phase,
        seed=group.seed,
        backend=target.to_dict(),
        rerun="" if fields["status"] is Status.PASSED else _command(request, number),
        origin=origin,
        **fields,
    )


def _command(request: Request, number: int | str) -> str:
    """Return the command that runs one sample of a group again, or the whole group."""
    group, target = request.group, request.target
    words = ["optest", "run", "--suite", group.suite, "--op", group.entry, "--dtype", group.dtype]
    words += ["--phase", group.phase, "--seed", str(group.seed)]
    words += ["--sample", str(number)] if isinstance(number, int) else []
    words += ["--backend", target.name or target.kind, *(("--chip", target.chip) if target.chip else ())]
    return shlex.join(words)


def overloads_of(case: Case) -> list[str]:
    """Return the names of the overloads that eager PyTorch calls for a forward case."""
    if case.skipped or case.raises is not None or case.call.kind != FORWARD:
        return []
    call = case.call.map(copied)
    try:
        with overloads_seen() as names:
            evaluate(call)
    except Exception:  # noqa: BLE001  # some operators refuse to be watched
        return []
    return sorted(names)
