"""The interface of reporters, and the manager that passes the events of a run to all of them."""

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
    """A listener to the events of a run, which come in the order of the methods here.

    Subclasses override what they need. ``on_complete`` is also called for a run that was
    interrupted or failed after its start. If a reporter raises, only that reporter ends.
    """

    name = ""

    def on_start(self, run: RunInfo, total: int | None) -> None:
        """Handle the start of a run; ``total`` is the number of its cases, if known."""

    def on_case_result(self, result: CaseResult) -> None:
        """Handle the final result of a case."""

    def on_complete(self, summary: Summary) -> None:
        """Handle the end of the run; only ``discard`` follows."""

    def discard(self) -> None:
        """Close what is open and remove incomplete files; called last, whatever happened."""


class ReportManager:
    """Passes events on to ``reporters``.

    A reporter that raises gets no further events, and its error is added to ``summary.problems``.
    The other reporters still get all events.
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
        """Pass on the start; an :class:`OptestError` is raised, since no results could be lost yet."""
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
        """Pass on the end in reverse order, so that the first reporter, the terminal, knows all problems."""
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
