"""JUnit XML, as Jenkins, GitLab and similar tools read it: one suite, one ``testcase`` per case.

The format only has passes, failures, errors and skips. Only a plain pass on the backend counts as a pass;
the status of all others is in their message. An incomplete run has one additional error.
"""

from __future__ import annotations

import re
import shutil
import socket
import tempfile
from collections import Counter
from typing import IO, TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from ..core.result import Status
from ..core.summary import unfinished
from .diagnostics import details, title
from .files import FileReporter

if TYPE_CHECKING:
    from ..core.result import CaseResult, RunInfo
    from ..core.summary import Summary

_ELEMENTS = {
    Status.MISMATCH: "failure",
    Status.XPASSED: "failure",
    Status.ERROR: "error",
    Status.CRASHED: "error",
    Status.TIMED_OUT: "error",
    Status.UNSUPPORTED: "skipped",
    Status.FALLBACK: "skipped",
    Status.SKIPPED: "skipped",
    Status.XFAILED: "skipped",
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 does not allow."""


class JUnitReporter(FileReporter):
    """Writes JUnit XML; counts come first in the file, so cases go to a temporary file until the end."""

    name, suffix = "junit", "xml"

    def on_start(self, run: RunInfo, total: int | None) -> None:
        super().on_start(run, total)
        self._cases: IO[str] = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._counts: Counter[str] = Counter()
        self._seconds = 0.0

    def on_case_result(self, result: CaseResult) -> None:
        self._seconds += result.duration_s
        element = _ELEMENTS.get(result.status, "")
        self._counts["tests"] += 1
        self._counts[element] += 1
        head = (
            f"<testcase classname={_quoted(f'optest.{result.category}.{result.op}')} "
            f'name={_quoted(f"{title(result)} {result.case_id}")} time="{result.duration_s:.6f}"'
        )
        if element:
            body = (
                "" if element == "skipped" else _escaped("\n".join(f"{a}: {b}" for a, b in details(result)))
            )
            kind = "" if element == "skipped" else f' type="{result.status.value}"'
            text = ": ".join(part for part in (result.status.value, result.reason) if part)
            self._cases.write(
                f"{head}><{element} message={_quoted(text)}{kind}>{body}</{element}></testcase>\n"
            )
        elif result.flaky:
            self._cases.write(f"{head}><system-out>{_escaped(result.reason)}</system-out></testcase>\n")
        else:
            self._cases.write(f"{head}/>\n")

    def on_complete(self, summary: Summary) -> None:
        if why := unfinished(summary.to_dict(), summary.total, summary.ran):
            self._counts["tests"] += 1
            self._counts["error"] += 1
            self._cases.write(
                '<testcase classname="optest" name="the run is whole" time="0">'
                f'<error message={_quoted(why)} type="interrupted"></error></testcase>\n'
            )
        counts = (
            f'tests="{self._counts["tests"]}" failures="{self._counts["failure"]}" '
            f'errors="{self._counts["error"]}"'
        )
        seconds = f'time="{self._seconds:.6f}"'
        properties = {"run_id": self.run.run_id, "command": self.run.command_line, **self.run.environment}
        file = self.file
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write(f'<testsuites name="optest" {counts} {seconds}>\n')
        file.write(
            f"<testsuite name={_quoted(f'optest.{self.run.target}')} {counts} "
            f'skipped="{self._counts["skipped"]}" {seconds} '
            f'timestamp="{self.run.started[:19]}" hostname={_quoted(socket.gethostname())}>\n<properties>\n'
        )
        for name, value in properties.items():
            file.write(f"<property name={_quoted(name)} value={_quoted(value)}/>\n")
        file.write("</properties>\n")
        self._cases.seek(0)
        shutil.copyfileobj(self._cases, file)
        self._cases.close()
        file.write("</testsuite>\n</testsuites>\n")
        self.commit()


def _escaped(text: str) -> str:
    return escape(_FORBIDDEN.sub("\ufffd", text))


def _quoted(text: str) -> str:
    return quoteattr(_FORBIDDEN.sub("\ufffd", text), {"\n": "&#10;"})
