"""The HTML report for people: a single file that loads nothing from elsewhere."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..core.result import Status
from .diagnostics import backend, details, title
from .files import FileReporter

if TYPE_CHECKING:
    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary

_SHOWN = 1000
"""How many failures the page shows in full."""


class HtmlReporter(FileReporter):
    """Shows operators with their counts, and failures with their diagnostics."""

    name, suffix = "html", "html"

    def on_start(self, run: RunInfo, total: int | None) -> None:
        super().on_start(run, total)
        self._operators: dict[tuple[str, str], Counter[Status]] = {}
        self._failures: list[CaseResult] = []
        self._gaps: Counter[tuple[str, Status, str]] = Counter()

    def on_case_result(self, result: CaseResult) -> None:
        self._operators.setdefault((result.category, result.op), Counter())[result.status] += 1
        if result.status.failed and len(self._failures) < _SHOWN:
            self._failures.append(result)
        elif not result.status.failed and result.status is not Status.PASSED:
            self._gaps[result.op, result.status, result.reason] += 1

    def on_complete(self, summary: Summary) -> None:
        environment = Environment(
            loader=PackageLoader("optest.reporting"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        page = environment.get_template("report.html.j2").generate(
            run=self.run,
            summary=summary,
            statuses=[one for one in Status if summary.counts[one]],
            operators=sorted(self._operators.items(), key=_worst_first),
            failures=self._failures,
            gaps=self._gaps.most_common(_SHOWN),
            title=title,
            details=details,
            backend=backend,
        )
        self.file.writelines(page)
        self.commit()


def _worst_first(entry: tuple[tuple[str, str], Counter[Status]]) -> tuple[int, tuple[str, str]]:
    name, counts = entry
    return -sum(count for status, count in counts.items() if status.failed), name
