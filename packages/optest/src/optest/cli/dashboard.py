"""``optest dashboard``: results as a static page."""

from __future__ import annotations

from pathlib import Path

import click

from ..console import OK, echo, print_json
from .command import command
from .coverage import LEDGER


@command("dashboard")
@LEDGER
@click.option("--run", "runs", multiple=True, metavar="RUN", help="A run to show.  [default: the newest two]")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="All runs of this backend as one: the newest result of every case.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Where pages go."
)
def dashboard(
    ledger: str | None, runs: tuple[str, ...], backends: tuple[str, ...], output: Path, as_json: bool
) -> int:
    """Write a static page that shows recorded runs; any browser can open it, even from a local disk."""
    from ..dashboard.site import write_site
    from ..session import open_ledger

    shown = write_site(open_ledger(ledger, create=False), output, runs, backends)
    if as_json:
        runs_alone = [one.title for one in shown if not one.together]
        names = [one.backend for one in shown if one.together]
        print_json({"page": str(output / "index.html"), "runs": runs_alone, "backends": names})
    else:
        echo(f"{output / 'index.html'}: {', '.join(one.title for one in shown)}")
    return OK
