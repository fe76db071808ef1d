"""``optest coverage``, ``stage`` and ``attest``: evaluate recorded results."""

from __future__ import annotations

import datetime
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console import FAILURES, OK, echo, print_json, print_table
from .command import command
from .run import with_options

if TYPE_CHECKING:
    from ..coverage.snapshot import Snapshot

_PATH = click.Path(path_type=Path)
LEDGER = click.option("--ledger", metavar="PATH|URL", help="The ledger.  [default: OPTEST_LEDGER]")
BACKEND = click.option("--backend", metavar="NAME", help="Whose runs.  [default: the newest run's]")
STAGES = click.option(
    "--stages", type=_PATH, metavar="FILE", help="Stages and checklists of your own, in TOML."
)
EVIDENCE = click.option("--evidence", type=_PATH, metavar="FILE", help="Attestations, in TOML.")
FROM = (
    LEDGER,
    BACKEND,
    click.option("--run", "runs", multiple=True, metavar="RUN", help="Only this run; may be repeated."),
    STAGES,
    EVIDENCE,
)


@command("coverage")
@with_options(*FROM)
@click.option("-o", "--output", type=_PATH, metavar="FILE", help="Write COVERAGE.md, one screen.")
@click.option("--details", type=_PATH, metavar="FILE", help="Write the page of details that it links to.")
@click.option("--badges", type=_PATH, metavar="DIR", help="Write badges as SVG.")
@click.option("--model", metavar="MODULE:FUNCTION|FILE.pt2", help="Only what this model calls.")
def coverage(
    output: Path | None,
    details: Path | None,
    badges: Path | None,
    model: str | None,
    as_json: bool,
    **given: Any,
) -> int:
    """Show which operators are covered, computed from recorded results.

    With --model: the operators that a model calls, weighted by calls. The function takes
    no arguments and returns the model and a tuple of its arguments.
    """
    snapshot = _snapshot(as_json, **given)
    _write(snapshot, output, details)
    if badges is not None:
        from ..coverage.badges import write_badges

        write_badges(snapshot, badges)
    if model is not None:
        return _model(snapshot, model, as_json)
    if as_json:
        print_json(snapshot.to_dict())
        return OK
    rows = [
        (one.category, one.name, one.level.value, one.reason or "; ".join(one.missing))
        for one in snapshot.operators
    ]
    print_table(("category", "operator", "covered", "missing"), rows)
    counts = ", ".join(f"{count} {level.value}" for level, count in sorted(snapshot.counts.items()))
    echo(f"{snapshot.evidence.backend}: {counts}; {snapshot.progress.name}")
    return OK


@command("stage")
@with_options(*FROM)
@click.option("--at-least", type=click.IntRange(0), metavar="N", help="Exit with 1 below this stage.")
def stage(at_least: int | None, as_json: bool, **given: Any) -> int:
    """Show which maturity stage a backend has reached, and what the next one needs, item by item."""
    snapshot = _snapshot(as_json, **given)
    progress = snapshot.progress
    if as_json:
        described = {"backend": snapshot.evidence.backend, "warnings": list(snapshot.evidence.warnings)}
        print_json(described | progress.to_dict())
    else:
        echo(f"{snapshot.evidence.backend}: {progress.name}; target: Stage {progress.target}")
        for one in (*progress.stages, *progress.checklists):
            echo(f"\n{one.title}: {one.summary} ({'complete' if one.complete else 'not complete'})")
            for item in one.items:
                echo(f"  {item.state.value:14}  {item.text}")
                for text in item.detail:
                    echo(f"  {'':14}    {text}")
    return FAILURES if at_least is not None and progress.reached < at_least else OK


@command("attest")
@click.argument("criterion")
@click.argument("words", nargs=-1, required=True, metavar="COMMAND…", type=click.UNPROCESSED)
@click.option("--evidence", type=_PATH, required=True, metavar="FILE", help="The file to add to.")
def attest(criterion: str, words: tuple[str, ...], evidence: Path, as_json: bool) -> int:
    """Run COMMAND and keep its output's hash as evidence for CRITERION, which no result can show."""
    from ..coverage.attestation import attest as add

    made = add(evidence, criterion, words, datetime.date.today())
    if as_json:
        print_json({"id": made.id, "command": made.command, "date": str(made.date), "sha256": made.sha256})
    else:
        echo(f"{made.id}: attested by {made.command!r}, output {made.sha256}")
    return OK


def _snapshot(as_json: bool, ledger: str | None, **given: Any) -> Snapshot:
    from ..coverage.snapshot import take_snapshot
    from ..session import open_ledger

    snapshot = take_snapshot(open_ledger(ledger, create=False), **given)
    for warning in () if as_json else snapshot.evidence.warnings:
        echo(f"optest: {warning}", err=True)
    return snapshot


def _write(snapshot: Snapshot, output: Path | None, details: Path | None) -> None:
    from ..coverage.details import details_page
    from ..coverage.page import coverage_page

    command = " ".join(
        [
            f"optest coverage --backend {shlex.quote(snapshot.evidence.backend)}",
            *([] if output is None else [f"-o {output.name}"]),
            *([] if details is None else [f"--details {details.name}"]),
        ]
    )
    if details is not None:
        _write_text(details, details_page(snapshot, command))
    if output is not None:
        link = None if details is None else Path(os.path.relpath(details, output.parent)).as_posix()
        _write_text(output, coverage_page(snapshot, command, link))


def _write_text(path: Path, text: str) -> None:
    from ..errors import ReportError
    from ..files import write_whole

    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise ReportError(f"{path} cannot be written: {error.strerror}") from error


def _model(snapshot: Snapshot, model: str, as_json: bool) -> int:
    from ..coverage.models import model_coverage
    from ..torch.model_calls import count_calls

    found = model_coverage(model, count_calls(model), snapshot.operators)
    if as_json:
        print_json(found.to_dict())
        return OK
    rows = [(one.function, one.calls, one.operator or "", one.level or "no entry") for one in found.called]
    print_table(("function", "calls", "operator", "covered"), rows)
    echo(f"{found.covered_calls} of {found.calls} calls are of fully covered operators")
    return OK
