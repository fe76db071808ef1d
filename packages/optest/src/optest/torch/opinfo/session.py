"""One run of a suite of PyTorch's: the groups of a selection as tasks on a driver."""

from __future__ import annotations

from ...backends import CallDriver, backend_manager
from ...core.case import BackendTarget
from ...errors import UsageError
from ...plan.options import RunOptions
from ...session import Outcome, run_tasks
from ..internals import need_torch
from .groups import Selection

_TURN = 96
"""Cases of a task at most."""


def run_suite(
    selection: Selection, options: RunOptions, *, terminal: bool = True, color: bool = True
) -> Outcome:
    """Plan and run a suite on the driver of ``options``, which say how, and where results go.

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

    target = BackendTarget(driver.kind, driver.name, options.chip)
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
