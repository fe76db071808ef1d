"""The report of a suite as Markdown and as a self-contained HTML page."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from .suite import SuiteReport

MOST = 20
"""The most hot spots that are shown; the JSON has all of them."""


@dataclass(frozen=True)
class Section:
    """A title and a table."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def sections(report: SuiteReport) -> list[Section]:
    """Return the tables of a report; tables without rows are left out."""
    rows: list[tuple[str, ...]] = []
    for entry in report.entries:
        if entry.found is None:
            rows.append((entry.name, "-", "", "", "", _line(entry.error)))
            continue
        for stage in entry.found.summary():
            largest = f"{stage.max_abs:.2e} ({stage.max_ulp} ULP)"
            verdict = stage.verdict
            if stage.stage in entry.found.errors:
                verdict = f"error: {_line(entry.found.errors[stage.stage])}"
            rows.append(
                (entry.name, stage.stage, str(stage.tensors), largest, str(stage.by_float64), verdict)
            )
    spots = [
        (spot.model, spot.check.stage, spot.check.name, spot.check.comparison.summary(), spot.source)
        for spot in report.hot_spots[:MOST]
    ]
    notes = [(entry.name, note) for entry in report.entries if entry.found for note in entry.found.notes]
    unsupported = [
        (
            one["overload"],
            str(one["count"]),
            one["reason"],
            "; ".join(f"{model}: {', '.join(lines[:3]) or '?'}" for model, lines in one["models"].items()),
        )
        for one in report.unsupported()
    ]
    made = [
        Section("models", ("model", "stage", "tensors", "largest difference", "by float64", "verdict"), rows),
        Section("notes", ("model", "note"), notes),
        Section("hot spots", ("model", "stage", "tensor", "difference", "source"), spots),
        Section("unsupported operators", ("operator", "calls", "reason", "where"), unsupported),
    ]
    return [section for section in made if section.rows]


def verdict(report: SuiteReport) -> str:
    """Return one line: how many models passed, and the settings."""
    passed = sum(entry.passed for entry in report.entries)
    settings = ", ".join(f"{name} {value}" for name, value in report.settings.items() if value is not None)
    return f"{passed} of {len(report.entries)} models passed ({settings})"


def markdown(report: SuiteReport) -> str:
    """The report as Markdown."""
    lines = ["# Parity with eager PyTorch", "", verdict(report)]
    for section in sections(report):
        lines += ["", f"## {section.title.capitalize()}", ""]
        for row in (section.columns, ("---",) * len(section.columns), *section.rows):
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(lines) + "\n"


def page(report: SuiteReport) -> str:
    """The report as one HTML file."""
    parts = [f"<h1>Parity with eager PyTorch</h1>\n<p>{html.escape(verdict(report))}</p>"]
    for section in sections(report):
        head = "".join(f"<th>{html.escape(name)}</th>" for name in section.columns)
        body = "\n".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in section.rows
        )
        title = html.escape(section.title.capitalize())
        parts.append(f"<h2>{title}</h2>\n<table>\n<tr>{head}</tr>\n{body}\n</table>")
    return _PAGE.format(body="\n".join(parts))


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Parity with eager PyTorch</title>
<style>
body {{ font-family: sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
td, th {{ border: 1px solid #ccc; padding: 0.2rem 0.6rem; text-align: left; vertical-align: top; }}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def _line(text: str) -> str:
    """The first line of an error."""
    return text.strip().partition("\n")[0]
