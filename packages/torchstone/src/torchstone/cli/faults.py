"""``torchstone faults``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from optest.console import FAILURES, OK, echo, print_json, print_table
from optest.options import SEED, SHARE

from .command import command
from .output import progress

if TYPE_CHECKING:
    from ..parity.faults import FaultReport

_COUNT = click.IntRange(min=1)


@command("faults")
@click.option("--op", "entries", multiple=True, help="Only entries whose name matches (as in a shell).")
@click.option("--fault", "faults", multiple=True, help="Only this kind of fault, such as wrong-sign.")
@click.option("--lowerings", type=_COUNT, default=60, show_default=True, help="How many lowerings to break.")
@click.option("--each", type=_COUNT, default=3, show_default=True, help="How many faults in each of them.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Draws lowerings, faults and samples.")
@click.option(
    "--at-least",
    type=SHARE,
    default=0.95,
    show_default=True,
    help="Share of faults that must be caught; below it the exit code is 1.",
)
def faults(
    entries: tuple[str, ...],
    faults: tuple[str, ...],
    lowerings: int,
    each: int,
    seed: int,
    at_least: float,
    as_json: bool,
) -> int:
    """Break lowerings and show which faults the suite over PyTorch's operator database misses.

    Lowerings are drawn from all families that the suite exercises. Each entry first runs without a
    fault: only samples that pass then can detect one. Sixty lowerings take about five minutes.
    """
    with progress() as stage:
        stage("loading the operator database")
        from optest.errors import UnknownName

        from ..parity.faults import run_faults

        try:
            report = run_faults(entries, faults, lowerings=lowerings, each=each, seed=seed, progress=stage)
        except UnknownName as error:
            raise click.UsageError(error.message) from error
    enough = report.caught_share >= at_least
    if as_json:
        print_json({**report.to_dict(), "at_least": at_least, "enough": enough})
    else:
        _print(report)
    return OK if enough else FAILURES


def _print(report: FaultReport) -> None:
    from ..parity.faults import Verdict

    rows = [
        (name, caught, total, f"{caught / total:.1%}")
        for name, (caught, total) in report.by(lambda one: one.kind).items()
    ]
    print_table(("fault", "caught", "of", "share"), rows)
    survivors = report.having(Verdict.SURVIVED)
    if survivors:
        echo("Not caught:")
        lines = [(one.lowering, one.fault, one.group, one.detail) for one in survivors]
        print_table(("lowering", "fault", "samples of", ""), lines)
    rules = Counter((one.kind, one.detail) for one in report.having(Verdict.EXCLUDED))
    if rules:
        echo("Excluded by a rule:")
        for (kind, reason), count in sorted(rules.items()):
            echo(f"  {kind}: {reason} ({count})")
    for entry, reason in report.left_out.items():
        echo(f"Left out: {entry}: {reason}")
    families = len(report.by(lambda one: one.family))
    echo(
        f"{len(report.having(Verdict.CAUGHT))} of {len(report.applicable)} applicable faults caught "
        f"({report.caught_share:.2%}) in {report.lowerings} lowerings of {families} families; "
        f"{report.controls} entries ran without a fault first"
    )
