"""A static dashboard: a folder that any browser can open, even from a local disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..core.result import FAILURES
from ..coverage.evidence import runs_of
from ..errors import ReportError, UsageError
from ..files import write_whole
from ..ledger import Ledger
from . import data
from .pages import MEDIA_TYPES, asset, script

RECENT = 2
"""How many runs are shown in full by default: the newest and the one before it."""


def write_site(
    ledger: Ledger, folder: Path, runs: Sequence[str] = (), backends: Sequence[str] = ()
) -> list[data.Shown]:
    """Write the pages to ``folder``, and return what they show.

    ``runs`` are ids or their beginnings. For each of ``backends``, all its runs are shown as one, with the
    newest result of every case. Raises :class:`UsageError` if the ledger lacks any of them, and
    :class:`ReportError` if the pages cannot be written.
    """
    shown = [data.together(runs_of(ledger, one)) for one in backends]
    if runs or not backends:
        shown = [*_chosen(ledger, runs), *shown]
    try:
        for name in MEDIA_TYPES:
            write_whole(folder / name, asset(name))
        write_whole(folder / "data" / "index.js", script("index", data.index(ledger, shown)).encode())
        for backend in {one.backend for one in shown}:
            name = f"coverage/{data.key_of(backend)}"
            write_whole(folder / "data" / f"{name}.js", script(name, data.coverage(ledger, backend)).encode())
        for one in shown:
            _write_shown(ledger, folder / "data", one)
    except OSError as error:
        raise ReportError(f"the dashboard cannot be written to {folder}: {error.strerror}") from error
    return shown


def _chosen(ledger: Ledger, runs: Sequence[str]) -> list[data.Shown]:
    """Return the named runs, oldest first; by default the newest ones."""
    every = ledger.runs()
    if not every:
        raise UsageError(f"the ledger {ledger.place} has no run", "record one: optest run --suite builtin")
    wanted = {ledger.find_run(one) for one in runs} or {one.run_id for one in every[-RECENT:]}
    return [data.Shown(one) for one in every if one.run_id in wanted]


def _write_shown(ledger: Ledger, folder: Path, shown: data.Shown) -> None:
    key = shown.key
    overview = data.overview(ledger, shown.runs)
    rows = list(ledger.cases(shown.runs, metrics=True))
    failing = (one for one in rows if one.status in FAILURES)
    parts = {
        "overview": overview,
        "failures": data.failures(failing),
        "distributions": data.distributions(rows),
    }
    for name, part in parts.items():
        write_whole(folder / key / f"{name}.js", script(f"{key}/{name}", part).encode())
    for op, cases in data.by_operator(rows):
        name = f"{key}/{data.key_of(op)}"
        write_whole(folder / f"{name}.js", script(name, data.operator_cases(cases)).encode())
