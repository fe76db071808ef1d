"""Writing the gap log as Markdown, CSV, JSON or one HTML page, without judging anything."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from itertools import groupby

from .log import Entry, Log

COLUMNS = (
    *("id", "api", "equivalent", "gap", "severity", "priority", "status", "why, or what to do"),
    *("first seen", "test"),
)


def to_json(log: Log) -> str:
    """Return the whole log as JSON, which :func:`~.log.load_entries` can read."""
    return json.dumps(log.to_dict(), indent=1, ensure_ascii=False) + "\n"


def to_history(log: Log) -> str:
    """Return only the entries as JSON, as a later log needs them; nothing in it depends on the machine."""
    kept = {
        name: value
        for name, value in log.to_dict().items()
        if name in ("format", "format_version", "entries")
    }
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


def to_csv(log: Log) -> str:
    """Return CSV with one line per entry, under a header with the field names."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Entry)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(one) for one in log.entries)
    return text.getvalue()


def to_markdown(log: Log) -> str:
    """Return Markdown tables: the number of APIs with each status, and the gaps by kind."""
    head = (
        f"Provider {log.provider}, with {_versions(log)}.",
        f"What is compared: {log.compared}.",
        f"{log.calls()}.",
    )
    lines = [line for text in head for line in (_plain(text), "")]
    lines += _markdown_table(_summary_header(log), _summary_rows(log))
    for kind, entries in groupby(log.entries, key=lambda one: one.kind):
        rows = [_cells(one) for one in entries]
        lines += ["", f"## {str(kind).capitalize()}", "", *_markdown_table(COLUMNS, rows)]
    if log.problems:
        lines += ["", "## Problems", "", *(f"- {_plain(one)}" for one in log.problems)]
    return "\n".join(lines) + "\n"


def to_html(log: Log) -> str:
    """Return one HTML page that loads nothing from elsewhere; names are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("torchstone.gaps"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("log.html.j2").render(
        log=log,
        versions=_versions(log),
        header=_summary_header(log),
        summary=_summary_rows(log),
        columns=COLUMNS,
        rows=[(one, _cells(one)) for one in log.entries],
    )


FORMATS: Mapping[str, Callable[[Log], str]] = {
    "markdown": to_markdown,
    "csv": to_csv,
    "json": to_json,
    "html": to_html,
}


def _versions(log: Log) -> str:
    return ", ".join(f"{name} {version}" for name, version in log.versions.items())


def _statuses(log: Log) -> list[str]:
    return sorted({status for counts in log.summary.values() for status in counts})


def _summary_header(log: Log) -> tuple[str, ...]:
    return ("namespace", *_statuses(log), "called")


def _summary_rows(log: Log) -> list[tuple[str, ...]]:
    """Return one row for each namespace that has other statuses than match, and one row for all the rest."""
    columns = [*_statuses(log), "called"]
    quiet: Counter[str] = Counter()
    rows = []
    for name, statuses in log.summary.items():
        counts = Counter({**statuses, "called": log.tried.get(name, 0)})
        if set(statuses) - {"match"}:
            rows.append((name, *(str(counts[column] or "") for column in columns)))
        else:
            quiet += counts
    if quiet:
        rows.append(("all others", *(str(quiet[column] or "") for column in columns)))
    return rows


def _cells(one: Entry) -> tuple[str, ...]:
    why = "; ".join(filter(None, (one.note, one.action)))
    status = f"{one.status} in {one.fixed_in}" if one.fixed_in else one.status
    urgency = (one.severity, str(one.priority))
    return (one.id, one.api, one.equivalent, one.description, *urgency, status, why, one.first_seen, one.test)


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *([_plain(cell) for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def _plain(text: str) -> str:
    """Return ``text`` on one line, with the special characters of Markdown and HTML escaped."""
    for sign in "\\`*_[]<>|":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
