"""The report on the terminal: progress, each failure in detail, a condensed summary.

If stdout is not a terminal, progress and color are left out, and lines are not broken.
"""

from __future__ import annotations

from collections import Counter
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..core.result import Status
from .diagnostics import clean, details, title
from .manager import Reporter

if TYPE_CHECKING:
    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary

_DETAILED = 20
"""How many failures are shown in full; report files have all of them."""
_CONDENSED = 40
"""The largest number of lines in the summary of failures."""
_STYLES = {
    Status.PASSED: "green",
    Status.XFAILED: "yellow",
    Status.UNSUPPORTED: "yellow",
    Status.FALLBACK: "yellow",
    Status.SKIPPED: "yellow",
}
_REDRAW = 16
"""How many cases pass between two updates of the progress bar, which take longer than many cases do."""


class TerminalReporter(Reporter):
    """Writes to stdout, or to ``file``."""

    name = "terminal"

    def __init__(self, *, color: bool = True, file: IO[str] | None = None) -> None:
        self._console = Console(
            file=file, no_color=not color, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._progress: Progress | None = None
        self._task = TaskID(0)
        self._seen = self._failed = 0
        self._by_operator: Counter[tuple[str, Status]] = Counter()
        self._first: dict[tuple[str, Status], CaseResult] = {}

    def on_start(self, run: RunInfo, total: int | None) -> None:
        cases = "" if total is None else f"{total} case{'' if total == 1 else 's'} on "
        self._console.print(f"optest {run.version}: {cases}{run.target}, run {run.run_id}")
        if self._console.is_terminal:
            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
            )
            self._progress = Progress(*columns, console=self._console, transient=True)
            self._task = self._progress.add_task("", total=total)
            self._progress.start()

    def on_case_result(self, result: CaseResult) -> None:
        self._seen += 1
        if result.status.failed:
            self._failed += 1
            key = result.op, result.status
            self._by_operator[key] += 1
            self._first.setdefault(key, result)
            if self._failed <= _DETAILED:
                self._detail(result)
            elif self._failed == _DETAILED + 1:
                self._console.print("(further failures only in the summary and in reports)", style="dim")
        if self._progress is not None and (self._seen % _REDRAW == 0 or result.status.failed):
            told = f"{self._failed} failed" if self._failed else ""
            self._progress.update(self._task, completed=self._seen, description=told)

    def on_complete(self, summary: Summary) -> None:
        self.discard()
        if self._by_operator:
            self._console.print()
            self._console.print("failures", style="bold")
            for key, count in self._by_operator.most_common(_CONDENSED):
                op, status = key
                first = self._first[key]
                reason = clean(first.reason.partition("\n")[0])
                line = Text(f"  {op}  ")
                line.append(f"{status.value}", "red").append(f" × {count}  {first.case_id} {reason}")
                self._console.print(line)
            if (more := len(self._by_operator) - _CONDENSED) > 0:
                self._console.print(f"  and {more} more operators")
        for problem in summary.problems:
            self._console.print(f"problem: {problem}", style="red")
        self._console.print(_closing(summary))

    def discard(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _detail(self, result: CaseResult) -> None:
        self._console.print(Text.assemble((result.status.value.upper(), "bold red"), f" {title(result)}"))
        for label, text in details(result):
            indented = text.replace("\n", "\n" + " " * 14)
            self._console.print(Text.assemble((f"  {label:<11} ", "dim"), indented))


def _closing(summary: Summary) -> Text:
    """Return the last line, like ``118 passed, 2 mismatch in 0.4 s``."""
    line = Text()
    for status in Status:
        if count := summary.counts[status]:
            line.append(", " if line else "")
            line.append(f"{count} {status.value.replace('_', ' ')}", _STYLES.get(status, "bold red"))
    line = line if line else Text("no case ran")
    if summary.flaky:
        line.append(f" ({summary.flaky} of them flaky)", "yellow")
    line.append(f" in {summary.duration_s:.1f} s")
    if summary.resumed:
        line.append(f"; {summary.resumed} taken from the run before")
    left = "" if summary.missing is None else f", {summary.missing} cases left"
    if summary.interrupted:
        line.append(f"; interrupted{left}: --resume goes on", "bold yellow")
    elif summary.stopped:
        line.append(f"; stopped at the first failure{left}", "bold yellow")
    return line
