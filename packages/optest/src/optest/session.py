"""Performs one run, from options to exit code: driver, cases, runner, reports, ledger, declared gaps.

The command line and embedding code call :func:`run_session`. Nothing here parses flags or
judges arrays.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from .backends import BackendDriver, backend_manager
from .console import ENVIRONMENT, FAILURES, INTERRUPTED, OK
from .core.case import BackendTarget, TestCase
from .core.environment import describe_run
from .core.result import CaseResult, RunInfo
from .core.summary import Summary
from .errors import BackendError, OptestError, UsageError, told
from .files import real_path
from .ledger import Ledger, LedgerReporter
from .names import listing
from .paths import state_dir
from .plan.expectations import Expectations
from .plan.loader import load
from .plan.options import RunOptions
from .reporting import Reporter, TerminalReporter, make_reporter
from .running.executors import opened
from .running.journal import Journal
from .running.replay import write_script
from .running.runner import TestRunner
from .running.task import CaseTask, Task


@dataclass
class Outcome:
    """The outcome of a run; ``problems`` are the problems of the expectations file."""

    run: RunInfo
    summary: Summary
    expectations: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        if self.summary.interrupted:
            return INTERRUPTED
        if self.summary.failed or self.problems:
            return FAILURES
        return ENVIRONMENT if self.summary.problems else OK

    def to_dict(self) -> dict[str, Any]:
        """Return the run, the summary, the declared gaps and the exit code as JSON-safe data."""
        return {
            "run": self.run.to_dict(),
            "summary": self.summary.to_dict(),
            "expectations": {**self.expectations, "problems": self.problems},
            "exit_code": self.exit_code,
        }


def run_session(options: RunOptions, *, terminal: bool = True, color: bool = True) -> Outcome:
    """Run ``options``: select the driver, plan every case, run, report and record.

    All cases are planned before the first one runs, so that a mistake in a plan is found before time
    is spent. ``terminal`` shows progress and the summary. Raises :class:`UsageError` and
    :class:`EnvironmentError_` before anything has run.
    """
    driver, target = select(options)
    _check_config(driver, options)
    cases = list(load(options, target))
    for case in cases:
        _check(driver, case)
    plan = options.plan and str(real_path(options.plan))
    source = repr((plan, options.suite, options.source, target, options.shard))
    return run_tasks(
        options,
        driver,
        target,
        [CaseTask(case, options.plan) for case in cases],
        source=source,
        complete=options.complete,
        expectations=options.expectations or driver.expectations,
        terminal=terminal,
        color=color,
    )


def run_tasks(
    options: RunOptions,
    driver: BackendDriver,
    target: BackendTarget,
    tasks: Sequence[Task],
    *,
    source: str,
    complete: bool,
    expectations: Path | None,
    terminal: bool,
    color: bool,
) -> Outcome:
    """Run planned ``tasks``, report and record them; every suite runs through this function.

    ``source`` says where the tasks come from. Each source and set of versions has its own journal, so
    that ``--resume`` finds the right one and does not mix results of different versions. ``complete``
    says that the tasks are all tasks of the source; an expectation that matches none of them is then
    stale.
    """
    gaps = Expectations.load(expectations) if expectations else Expectations()
    run = describe_run(target, options.seed, driver.packages)
    reporters = _reporters(options, terminal=terminal, color=color)
    versions = sorted(run.environment.items())
    name = hashlib.sha256(repr((source, run.version, versions)).encode()).hexdigest()[:16]
    journal = Journal(state_dir() / "journals" / f"{name}.jsonl", resume=options.resume)
    with opened(options.executor, driver, options.workers, options.timeout) as (executor, workers):
        runner = TestRunner(
            driver,
            reporters,
            workers=workers,
            timeout=options.timeout,
            retries=options.retries,
            fail_fast=options.fail_fast,
            judge=gaps.judge,
            journal=journal,
            executor=executor,
        )
        summary = runner.run(tasks, run)
    complete = complete and not (summary.interrupted or summary.stopped)
    problems = gaps.problems(complete=complete, usual_values=options.seed == RunOptions.seed)
    return Outcome(run, summary, gaps.summary(), problems)


def _check_config(driver: BackendDriver, options: RunOptions) -> None:
    """Raise :class:`UsageError`, with the place in the plan, for settings that no driver reads."""
    backend_manager.check_config(options.backend_config, driver)
    for entry in options.entries:
        try:
            backend_manager.check_config(entry.fields.get("backend_config", {}), driver)
        except UsageError as error:
            raise entry.place.error("backend_config", error) from None


def _check(driver: BackendDriver, case: TestCase) -> None:
    """Ask the driver whether it can use the case's settings; raises :class:`OptestError` if not."""
    _called(driver, "check", lambda: driver.check(case))


_T = TypeVar("_T")


def _called(driver: BackendDriver, method: str, call: Callable[[], _T]) -> _T:
    """Return what a driver's own code returns; raises :class:`OptestError` if it raises anything."""
    try:
        return call()
    except OptestError:
        raise
    except BaseException as error:  # foreign code: not even SystemExit may end the run silently
        if isinstance(error, KeyboardInterrupt):
            raise
        raise BackendError(f"{method}() of the driver {driver.name} raised {told(error)}") from error


def _reporters(options: RunOptions, *, terminal: bool, color: bool) -> list[Reporter]:
    """Return the reporters of a run: the terminal, the reports, and the ledger unless it is ``none``."""
    reporters: list[Reporter] = [TerminalReporter(color=color)] if terminal else []
    reporters += [make_reporter(one.kind, one.path) for one in options.reports]
    if _ledger_place(options.ledger) != NO_LEDGER:
        reporters.append(LedgerReporter(open_ledger(options.ledger)))
    return reporters


def select(options: RunOptions) -> tuple[BackendDriver, BackendTarget]:
    """Return the driver that ``options`` name, and the target for its cases."""
    if options.backend is None:
        names = [one.name for one in backend_manager.drivers()]
        raise UsageError(
            f"no backend is named; there are {listing(names)}",
            "give --backend NAME, or `backend:` in the plan; stub checks optest itself",
        )
    driver = backend_manager.select(options.backend, options.chip)
    return driver, target_of(driver, options)


def target_of(driver: BackendDriver, options: RunOptions) -> BackendTarget:
    """Return the target of ``driver`` for ``options``, with the chip spelled as the driver spells it."""
    chip, settings = options.chip, options.backend_config.get(driver.name, {})
    known = [one for one in driver.chips if chip is not None and one.casefold() == chip.casefold()]
    config = _called(driver, "identity", lambda: driver.identity(settings))
    return BackendTarget(driver.kind, driver.name, known[0] if known else chip, config or None)


def find_case(case_id: str, options_of: Callable[..., RunOptions], *, named: bool) -> RunOptions:
    """Return options that run exactly the case ``case_id``, or the one whose id starts with it.

    ``options_of(**flags)`` makes options from flags of ``optest run``. With ``named``, the flags
    say where to look; otherwise the case is looked up in the ledger, then in the built-in suite.
    Raises :class:`UsageError` unless exactly one case matches.
    """
    options = options_of() if named else options_of(suite="builtin")
    found = None if named else recorded_case(case_id, options.ledger)
    if found is not None:
        options = options_of(**_flags_of(found, options))
    matching = [case.describe() for case in load(options) if case.id.startswith(case_id)]
    if len(matching) != 1:
        some = f": {listing(matching, limit=3)}" if matching else ""
        raise UsageError(
            f"{len(matching)} cases of {options.source} have the id {case_id}…{some}",
            "give the whole id" if matching else "name its plan: --plan FILE; `optest plan check FILE --ids`",
        )
    return replace(options, filters=(f"id={case_id}*",))


def recorded_case(case_id: str, ledger: str | None) -> CaseResult | None:
    """Return the newest record of a case in a ledger, if there is one."""
    return None if _ledger_place(ledger) == NO_LEDGER else open_ledger(ledger).find_case(case_id)


def _flags_of(result: CaseResult, options: RunOptions) -> dict[str, Any]:
    """Return flags of ``optest run`` for a recorded case."""
    backend = {"backend": result.backend["name"], "chip": result.backend["chip"]}
    return {
        "op": (result.op,),
        "dtype": (",".join(result.dtypes),),
        "shape": tuple(result.shapes.items()),
        "attr": tuple(result.attributes.items()),
        "phase": result.phase,
        "seed": result.seed,
    } | ({} if options.backend else backend)


def replay_script(options: RunOptions, file: Path) -> str:
    """Shrink the single case of ``options`` on its driver, write ``file``, and return what it shrank to."""
    driver, target = select(options)
    [case] = load(options, target)
    return write_script(case, driver, file).describe()


def open_ledger(place: str | None = None, *, create: bool = True) -> Ledger:
    """Open the ledger at a path or URL; by default that of ``OPTEST_LEDGER``, else a file of the user.

    Raises :class:`UsageError` for ``none``.
    """
    chosen = _ledger_place(place)
    if chosen == NO_LEDGER:
        raise UsageError(
            f"{NO_LEDGER!r} stands for no ledger, and here one is needed",
            f"name one: --ledger PATH; a file of that name is ./{NO_LEDGER}",
        )
    return Ledger(chosen, create=create)


NO_LEDGER = "none"


def _ledger_place(place: str | None) -> str:
    return place or os.environ.get("OPTEST_LEDGER") or str(state_dir() / "ledger.sqlite")
