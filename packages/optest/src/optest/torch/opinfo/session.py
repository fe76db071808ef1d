"""Runs one of PyTorch's suites: the groups of a selection as tasks on a driver, or one sample again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...backends import CallDriver, backend_manager
from ...core.result import CaseResult
from ...errors import UsageError
from ...plan.options import RunOptions
from ...session import Outcome, run_tasks, target_of
from ..internals import need_torch
from .groups import Selection

_TURN = 96
"""The largest number of cases in a task."""


def run_suite(
    selection: Selection, options: RunOptions, *, terminal: bool = True, color: bool = True
) -> Outcome:
    """Plan and run a suite as ``options`` say: on their driver, with results sent where they name.

    Raises :class:`UsageError` and :class:`EnvironmentError_` before anything has run.
    """
    need_torch(f"the suite {selection.suite}")
    if options.backend is None:
        raise UsageError(
            f"no backend is named for the suite {selection.suite}",
            "give --backend torch:cpu, torch-compile:inductor, or another driver that takes tensors",
        )
    driver = backend_manager.select(options.backend, options.chip)
    if not isinstance(driver, CallDriver):
        raise UsageError(
            f"the driver {driver.name!r} runs optest's own operators only, not calls of PyTorch's tensors",
            "--suite builtin runs on every driver; torch:DEVICE and torch-compile:BACKEND run them all",
        )
    from .execution import Request
    from .planning import plan

    target = target_of(driver, options)
    numbers = selection.samples or None
    return run_tasks(
        options,
        driver,
        target,
        [Request(one, target, numbers, selection.most, _TURN) for one in plan(selection)],
        source=repr((selection, target)),
        complete=False,
        expectations=options.expectations,
        terminal=terminal,
        color=color,
    )


def replay_sample(recorded: CaseResult, places: Mapping[str, Any], *, terminal: bool = True) -> Outcome:
    """Run the sample of a record again, or the whole group if the record stands for one.

    ``places`` are fields of :class:`RunOptions`; if they name no backend, the record's own is used.
    """
    assert recorded.origin is not None, "the record of a suite's case says where it comes from"
    sample = recorded.origin.sample
    selection = Selection(
        recorded.origin.suite,
        entries=(recorded.op,),
        dtypes=recorded.dtypes,
        phases=(recorded.phase,),
        samples=(sample,) if isinstance(sample, int) else (),
        seed=recorded.seed,
    )
    own = {} if places["backend"] else {"backend": recorded.backend["name"], "chip": recorded.backend["chip"]}
    options = RunOptions(suite=selection.suite, seed=selection.seed, **{**places, **own})
    return run_suite(selection, options, terminal=terminal)


def sample_script(recorded: CaseResult, backend: str | None, file: Path) -> str:
    """Shrink the sample of a record, write a script that shows the result, and return its description.

    The sample runs on the record's own backend if none is named. Raises :class:`UsageError` if it
    passes there.
    """
    need_torch("a suite of PyTorch's")
    from .replay import write_script

    return write_script(recorded, backend, file)
