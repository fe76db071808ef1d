"""One run of a suite, from options to exit code: groups, driver, runner, reports, ledger, declared gaps."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ...backends import backend_manager
from ...core.case import BackendTarget
from ...core.environment import describe_run
from ...errors import UsageError
from ...paths import state_dir
from ...plan.expectations import Expectations
from ...plan.options import ReportRequest
from ...running.executors import opened
from ...running.journal import Journal
from ...session import Outcome, reporters_of
from ..internals import need_torch
from .groups import Selection


@dataclass(frozen=True)
class SuiteOptions:
    """What to run, on what, how, and where results go; as in ``optest.plan.options.RunOptions``."""

    selection: Selection
    backend: str | None = None
    chip: str | None = None
    workers: int = 1
    executor: str = "process"
    timeout: float | None = None
    fail_fast: bool = False
    resume: bool = False
    reports: tuple[ReportRequest, ...] = ()
    ledger: str | None = None
    expectations: Path | None = None


def run_suite(options: SuiteOptions, *, terminal: bool = True, color: bool = True) -> Outcome:
    """Plan and run a suite.

    Raises :class:`UsageError` and :class:`EnvironmentError_` before anything has run.
    """
    selection = options.selection
    need_torch(f"the suite {selection.suite}")
    if options.backend is None:
        raise UsageError(
            f"no backend is named for the suite {selection.suite}",
            "give --backend torch:cpu, torch-compile:inductor, or another driver that takes tensors",
        )
    driver = backend_manager.select(options.backend, options.chip)
    if not callable(getattr(driver, "answer", None)):
        raise UsageError(
            f"the driver {driver.name!r} runs optest's own operators only, not calls of PyTorch's tensors",
            "--suite builtin runs on every driver; torch:DEVICE and torch-compile:BACKEND run them all",
        )
    from .planning import plan
    from .runner import SuiteRunner

    groups = plan(selection)
    target = BackendTarget(driver.kind, driver.name, options.chip)
    expectations = Expectations.load(options.expectations) if options.expectations else Expectations()
    run = describe_run(target, selection.seed, driver.packages)
    reporters = reporters_of(options.reports, options.ledger, terminal=terminal, color=color)
    with opened(options.executor, driver, options.workers, options.timeout) as (executor, workers):
        runner = SuiteRunner(
            driver,
            reporters,
            workers=workers,
            timeout=options.timeout,
            fail_fast=options.fail_fast,
            judge=expectations.judge,
            journal=Journal(_journal_file(options, target), resume=options.resume),
            executor=executor,
            most=selection.most,
            samples=selection.samples,
        )
        summary = runner.run(groups, run, target)
    problems = expectations.problems(complete=False, usual_values=selection.seed == 0)
    return Outcome(run, summary, expectations.summary(), problems)


def _journal_file(options: SuiteOptions, target: BackendTarget) -> Path:
    """One journal per selection and driver, so that ``--resume`` finds its own."""
    key = hashlib.sha256(repr((options.selection, target)).encode()).hexdigest()[:16]
    return state_dir() / "journals" / f"suite-{key}.jsonl"
