"""``optest plan check``."""

from __future__ import annotations

from pathlib import Path

import click

from ..console import OK, echo, print_json, print_table
from .command import command, load_plugins


@click.group("plan")
def plan() -> None:
    """Look at plan files."""


@command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--filter", "filters", multiple=True, help="Only cases that pass, as in `optest run`.")
@click.option("--ids", is_flag=True, help="List every case with its id.")
def check(file: Path, filters: tuple[str, ...], ids: bool, as_json: bool) -> int:
    """Check FILE with its includes, and count the cases it expands to."""
    from ..plan.loader import load
    from ..plan.options import resolve

    load_plugins(as_json)
    counts: dict[str, int] = {}
    listed: list[tuple[str, str]] = []
    for case in load(resolve(plan=file, filters=filters)):
        counts[case.op] = counts.get(case.op, 0) + 1
        if ids:
            listed.append((case.id, case.describe()))
    total = sum(counts.values())
    if as_json:
        found: dict[str, object] = {"plan": str(file), "cases": total, "operators": counts}
        print_json(found | ({"ids": dict(listed)} if ids else {}))
        return OK
    if ids:
        print_table(("case", ""), listed)
    else:
        print_table(("operator", "cases"), list(counts.items()))
    echo(f"{file}: {total} cases of {len(counts)} operators")
    return OK


plan.add_command(check)
