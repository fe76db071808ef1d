"""The reporter that writes a run into the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..reporting.manager import Reporter

if TYPE_CHECKING:
    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary
    from .store import Ledger

_BATCH = 500
"""How many results are written at a time; until then, the journal has them."""


class LedgerReporter(Reporter):
    """A reporter that adds the run and its results to ``ledger``."""

    name = "ledger"

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: list[CaseResult] = []
        self._run_id = ""

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """Add the run; raises :class:`LedgerError` if the ledger cannot be written."""
        self._run_id = run.run_id
        self._ledger.start(run)

    def on_case_result(self, result: CaseResult) -> None:
        self._waiting.append(result)
        if len(self._waiting) >= _BATCH:
            self._write()

    def on_complete(self, summary: Summary) -> None:
        self._write()
        self._ledger.finish(self._run_id, summary)

    def discard(self) -> None:
        self._ledger.close()

    def _write(self) -> None:
        self._ledger.append(self._run_id, self._waiting)
        self._waiting.clear()  # only now: after Ctrl-C above, the end writes them
