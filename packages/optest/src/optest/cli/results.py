"""``optest merge``, ``diff`` and ``history``: combine and compare recorded runs."""

from __future__ import annotations

import click

from ..console import FAILURES, OK, echo, print_json, print_table
from .command import command

_LEDGER = click.option("--ledger", metavar="PATH|URL", help="The ledger.  [default: OPTEST_LEDGER]")


@command("merge")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE…")
@_LEDGER
def merge(sources: tuple[str, ...], ledger: str | None, as_json: bool) -> int:
    """Add the runs of other ledgers, and the missing cases of runs that are there already."""
    from ..ledger.shards import missing_shards
    from ..session import open_ledger

    opened = {source: open_ledger(source, create=False) for source in sources}  # before the target is created
    target = open_ledger(ledger)
    added = {source: target.merge(one) for source, one in opened.items()}
    runs, cut = target.runs(), target.unfinished()
    warnings = missing_shards(runs)
    warnings += [f"the run {one.run_id} is not whole: {cut[one.run_id]}" for one in runs if one.run_id in cut]
    if as_json:
        print_json({"added": added} | ({"warnings": warnings} if warnings else {}))
        return OK
    for warning in warnings:
        echo(f"optest: {warning}", err=True)
    for source, count in added.items():
        echo(f"{source}: {count} runs added or completed")
    return OK


@command("diff")
@click.argument("run_a")
@click.argument("run_b")
@_LEDGER
def diff(run_a: str, run_b: str, ledger: str | None, as_json: bool) -> int:
    """Show what changed from RUN_A to RUN_B: failures, accuracy, time. Exits with 1 for new failures.

    A run is named by its id or the beginning of its id.
    """
    from ..session import open_ledger

    found = open_ledger(ledger, create=False).diff(run_a, run_b)
    if as_json:
        print_json(found.to_dict())
    else:
        print_table(("", "case", "operator", "change"), found.rows())
        for warning in found.warnings:
            echo(f"optest: {warning}", err=True)
        echo(found.text())
    return FAILURES if found.newly_failing else OK


@command("history")
@click.argument("op")
@_LEDGER
@click.option("--backend", help="Only runs on this driver.")
@click.option("--dtype", help="Only cases with this dtype.")
def history(op: str, ledger: str | None, backend: str | None, dtype: str | None, as_json: bool) -> int:
    """Show the results of OP in each recorded run, oldest first."""
    from ..errors import UsageError
    from ..session import open_ledger

    records = open_ledger(ledger, create=False).history(op, backend=backend, dtype=dtype)
    if not records:
        raise UsageError(f"the ledger has no run of {op!r}", "run it first: optest run --op " + op)
    if as_json:
        print_json({"op": op, "runs": records})
        return OK
    print_table(list(records[0]), [list(one.values()) for one in records])
    return OK
