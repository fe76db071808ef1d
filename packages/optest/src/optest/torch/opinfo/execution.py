"""One group in a worker process: its cases, the driver's answers, the verdicts, as records.

Not here: processes, crashes and what happens to records (``runner``).
"""

from __future__ import annotations

import shlex
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...core.case import BackendTarget
from ...core.result import CaseResult, Status
from ...running.execution import DriverHandle, tail
from ...running.worker import captured
from ..internals import overloads_seen
from .asking import asked
from .bounded import formed
from .calls import FORWARD, Answer, AnswersCalls, copied, evaluate
from .classes import Class, class_of
from .databases import entries_of
from .distribution import by_distribution, is_random, one_value
from .groups import Group
from .phases import Case, planned
from .values import values_of
from .verdict import Fields, array_of, by_error, by_form, by_value, mismatch

_ROUNDS = 10
"""How often programs run in the phases ``perf`` and ``stress``."""


def _no_seconds() -> dict[str, float]:
    return defaultdict(float)


@dataclass
class GroupOutcome:
    """The records of a group; ``seconds`` is what its parts took, by name.

    ``left`` are the numbers of the cases that did not have their turn.
    """

    results: list[CaseResult] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=_no_seconds)
    left: tuple[int, ...] = ()


@dataclass(frozen=True)
class Request:
    """A group to run on ``target``: all of it, some of its samples by number, or ``most`` of them.

    Of these the first ``turn`` run, if that is given.
    """

    group: Group
    target: BackendTarget
    numbers: tuple[int, ...] | None = None
    most: int | None = None
    turn: int | None = None


def add(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add seconds by name to a total."""
    for name, taken in more.items():
        total[name] = total.get(name, 0.0) + taken


def run_in_worker(handle: DriverHandle, request: Request) -> GroupOutcome:
    """``run_group`` on this worker process's own driver; a failure has what was written to stderr."""
    driver: Any = handle.open()
    torch.set_num_threads(1)
    outcome = run_group(driver, request)
    said = tail(captured())
    outcome.results = [
        replace(one, stderr_tail="\n".join(part for part in (said, one.stderr_tail) if part))
        if one.status.failed
        else one
        for one in outcome.results
    ]
    return outcome


def run_group(driver: AnswersCalls, request: Request) -> GroupOutcome:
    """Run the cases of a group; whatever goes wrong with one is in its record."""
    group = request.group
    outcome = GroupOutcome()
    declared = class_of(group.suite, group.entry, group.phase)
    if declared is not None and declared.kind == "untestable":
        fields = {"status": Status.SKIPPED, "reason": f"untestable: {declared.reason}"}
        outcome.results.append(record(request, "untestable", None, "untestable", fields))
        return outcome
    started = time.perf_counter()
    try:
        plans = planned(group, request.numbers, request.most)
        cases = [one.make() for one in plans[: request.turn]]
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
    outcome.left = tuple(one.number for one in plans[len(cases) :])
    if declared is not None:
        cases = [formed(group, case) for case in cases]
    outcome.seconds["samples and eager"] += time.perf_counter() - started
    for case, form, fields in _judged(driver, group, cases, declared, outcome.seconds):
        outcome.results.append(record(request, case.number, case, form, fields))
    return outcome


Judged = Iterable[tuple[Case, str, Fields]]


def _judged(
    driver: AnswersCalls,
    group: Group,
    cases: Sequence[Case],
    declared: Class | None,
    seconds: dict[str, float],
) -> Judged:
    """Each case with its class and the fields of its record."""
    kind = declared.kind if declared else ""
    for case in cases:
        if case.skipped:
            yield case, "", {"status": Status.SKIPPED, "reason": case.skipped}
    left = [case for case in cases if not case.skipped]
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
        add(seconds, answer.seconds)
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
"""Classes of entries of which only some samples need the form."""


def _class_of_case(case: Case, kind: str) -> str:
    return kind if kind not in _FORMED or case.formed else ""


_REPEATS = {"determinism": 2, "perf": _ROUNDS, "stress": _ROUNDS}
"""How often each program runs, by phase."""


def _runs(case: Case, answer: Answer, repeats: int) -> list[Sequence[Any]]:
    """The outputs of an answer, run by run; empty where there are none."""
    outputs, size = answer.outputs, len(case.expected)
    if outputs is None:
        return []
    if not size or len(outputs) != size * repeats:
        return [outputs]  # the verdict says what is wrong with that
    return [outputs[start : start + size] for start in range(0, len(outputs), size)]


def _own(answer: Answer) -> float:
    """What the backend took: all but PyTorch's capture."""
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
        reason = f"ran in eager PyTorch: {', '.join(answer.fallback)}"
        return {**fields, "status": Status.FALLBACK, "reason": reason}
    return fields


def _times(answer: Answer) -> str:
    """How long the parts of an answer took; its program ran some times."""
    parts = (f"{name} {1000 * taken:.3g} ms" for name, taken in answer.seconds.items())
    return f"{_ROUNDS} runs: {', '.join(parts)}"


_LOOSE = ("random", "determined")
"""Classes of which no bits are determined: eager's own differ with what is drawn, or where memory lies."""


def _repeated(runs: Sequence[Sequence[Any]], kind: str) -> Fields:
    """What more runs add: they must give the first one's bits; its values, where no bits are determined."""
    for number, other in enumerate(runs[1:], 2):
        for place, (one, two) in enumerate(zip(runs[0], other, strict=True)):
            first, again = array_of(one), array_of(two)
            if kind in _LOOSE and not one_value([first, again]):
                return mismatch(f"output{place}: run {number} gave other values than the first")
            if kind not in _LOOSE and first.tobytes() != again.tobytes():
                return mismatch(f"output{place}: run {number} gave other bits than the first")
    return {}


_DECLARING = (0, "untestable", "samples", "group")
"""Cases, by number or by what stands for a whole group, whose records say what the entry has at all."""


def record(
    request: Request, number: int | str, case: Case | None, form: str, fields: Mapping[str, Any]
) -> CaseResult:
    """The record of one case of a group."""
    group, target = request.group, request.target
    tensors = case.call.tensors if case else ()
    attributes: dict[str, Any] = {"suite": group.suite, "sample": number}
    if case is not None:
        attributes |= {"note": case.note, "class": form, "overloads": tuple(overloads_of(case))}
    else:
        attributes |= {"note": "", "class": form}
    if case is not None and number == 0:
        attributes["samples"] = case.among  # coverage tells how many of them ran
    if case is not None and fields["status"].failed:
        attributes["values"] = values_of(case)
    if group.phase == "forward" and number in _DECLARING:
        attributes |= entries_of(group.suite)[group.entry].declared()
    words = ["optest", "run", "--suite", group.suite, "--op", group.entry, "--dtype", group.dtype]
    words += ["--phase", group.phase, "--seed", str(group.seed)]
    words += ["--sample", str(number)] if isinstance(number, int) else []
    words += ["--backend", target.name or target.kind, *(("--chip", target.chip) if target.chip else ())]
    status = fields["status"]
    return CaseResult(
        case_id=group.case_id(number),
        op=group.entry,
        category=group.family,
        dtypes=(group.dtype,),
        shapes={f"input{place}": tuple(one.shape) for place, one in enumerate(tensors)},
        attributes=attributes,
        phase=group.phase,
        seed=group.seed,
        backend={"kind": target.kind, "name": target.name, "chip": target.chip},
        rerun="" if status is Status.PASSED else shlex.join(words),
        **fields,
    )


def overloads_of(case: Case) -> list[str]:
    """The overloads that eager PyTorch calls for a forward case."""
    if case.skipped or case.raises is not None or case.call.kind != FORWARD:
        return []
    call = case.call.map(copied)
    try:
        with overloads_seen() as names:
            evaluate(call)
    except Exception:  # noqa: BLE001  # some operators refuse to be watched
        return []
    return sorted(names)
