"""Reports of a run: on the terminal, as JSON, JUnit XML and HTML, and scripts that show one failure.

Reporters only write results; they do not judge them.
"""

from __future__ import annotations

from pathlib import Path

from ..errors import UnknownName
from .files import FileReporter
from .html import HtmlReporter
from .json_report import JsonReporter
from .junit import JUnitReporter
from .manager import Reporter, ReportManager
from .terminal import TerminalReporter

FILE_REPORTERS: dict[str, type[FileReporter]] = {
    "json": JsonReporter,
    "junit": JUnitReporter,
    "html": HtmlReporter,
}

__all__ = ["FILE_REPORTERS", "ReportManager", "Reporter", "TerminalReporter", "make_reporter"]


def make_reporter(kind: str, path: Path | None = None) -> Reporter:
    """Return a reporter that writes ``path``, or ``optest-report.SUFFIX`` in the current folder.

    Raises :class:`UnknownName` for an unknown kind.
    """
    if kind not in FILE_REPORTERS:
        raise UnknownName("report", kind, FILE_REPORTERS, "write --report KIND or KIND:PATH")
    return FILE_REPORTERS[kind](path)
