"""A static dashboard: a folder that any browser opens, also from a disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.result import FAILURES, RunInfo
from ..errors import ReportError, UsageError
from ..ledger import Ledger
from . import data
from .pages import MEDIA_TYPES, asset, script

RECENT = 2
"""Runs that are shown in full unless others are named: the newest and the one before it."""


def write_site(ledger: Ledger, folder: Path, runs: Sequence[str] = ()) -> list[RunInfo]:
    """Write the pages for ``runs`` (ids or their beginnings) to ``folder``; the runs that it has.

    Raises :class:`UsageError` for a ledger without such runs, :class:`ReportError` where
    nothing can be written.
    """
    shown = chosen_runs(ledger, runs)
    try:
        for name in MEDIA_TYPES:
            _write(folder / name, asset(name))
        _write(folder / "data" / "index.js", script("index", data.index(ledger, shown)).encode())
        for backend in {str(one.backend["name"]) for one in shown}:
            name = f"coverage/{data.key_of(backend)}"
            _write(folder / "data" / f"{name}.js", script(name, data.coverage(ledger, backend)).encode())
        for run in shown:
            _write_run(ledger, folder / "data", run)
    except OSError as error:
        raise ReportError(f"the dashboard cannot be written to {folder}: {error.strerror}") from error
    return shown


def chosen_runs(ledger: Ledger, runs: Sequence[str] = ()) -> list[RunInfo]:
    """The named runs, oldest first; by default the newest ones."""
    every = ledger.runs()
    if not every:
        raise UsageError(f"the ledger {ledger.place} has no run", "record one: optest run --suite builtin")
    if not runs:
        return every[-RECENT:]
    wanted = {ledger.find_run(one) for one in runs}
    return [one for one in every if one.run_id in wanted]


def _write_run(ledger: Ledger, folder: Path, run: RunInfo) -> None:
    key = data.key_of(run.run_id)
    overview = data.overview(ledger, run.run_id)
    rows = list(ledger.cases(run.run_id, metrics=True))
    failing = (one for one in rows if one.status in FAILURES)
    parts = {
        "overview": overview,
        "failures": data.failures(failing),
        "distributions": data.distributions(rows),
    }
    for name, part in parts.items():
        _write(folder / key / f"{name}.js", script(f"{key}/{name}", part).encode())
    for op, cases in data.by_operator(rows):
        name = f"{key}/{data.key_of(op)}"
        _write(folder / f"{name}.js", script(name, data.operator_cases(cases)).encode())


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
