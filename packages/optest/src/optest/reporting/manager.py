"""Who hears what happens in a run: the interface of reporters, and the one who tells them all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from ..errors import OptestError

if TYPE_CHECKING:
    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary


class Reporter:
    """Hears of a run. Subclasses override what they need; each event comes in this order.

    ``on_complete`` comes also for a run that was interrupted or that failed half-way,
    if it started. What a reporter raises ends its own part only.
    """

    name = ""

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """A run begins; ``total`` is the number of its cases, where it is known."""

    def on_case_result(self, result: CaseResult) -> None:
        """A case has its final result."""

    def on_complete(self, summary: Summary) -> None:
        """The run is over; nothing follows."""

    def discard(self) -> None:
        """Let go of what is open, and of files half written. Comes last, whatever happened."""


class ReportManager:
    """Passes events on to ``reporters``.

    A reporter that raises hears nothing more; what it raised is in ``summary.problems``,
    and its cases still reach the others.
    """

    def __init__(self, reporters: Sequence[Reporter], summary: Summary) -> None:
        self._reporters, self._summary = list(reporters), summary
        self._started = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._reporters:
            one.discard()
        self._reporters.clear()

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """The first event. An :class:`OptestError` goes through: nothing has run that could be lost."""
        for one in list(self._reporters):
            try:
                one.on_start(run, total)
            except OptestError:
                raise
            except Exception as error:  # noqa: BLE001  # a reporter may be a plugin's
                self._drop(one, error)
        self._started = True

    def on_case_result(self, result: CaseResult) -> None:
        for one in list(self._reporters):
            try:
                one.on_case_result(result)
            except Exception as error:  # noqa: BLE001
                self._drop(one, error)

    def on_complete(self, summary: Summary) -> None:
        """The last event, in reverse order: who shows the summary hears what became of the reports."""
        if not self._started:
            return
        for one in reversed(list(self._reporters)):
            try:
                one.on_complete(summary)
            except Exception as error:  # noqa: BLE001
                self._drop(one, error)

    def _drop(self, reporter: Reporter, error: Exception) -> None:
        self._reporters.remove(reporter)
        with contextlib.suppress(Exception):
            reporter.discard()
        text = str(error) if isinstance(error, OptestError) else f"{type(error).__name__}: {error}"
        self._summary.problems.append(f"{reporter.name or type(reporter).__name__}: {text}")
