"""``optest faults``: the mutation test of the suite."""

from __future__ import annotations

from collections import defaultdict
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import click

from ..console import FAILURES, OK, echo, print_json, print_table
from ..options import SEED, SHARE
from .command import command, load_plugins

if TYPE_CHECKING:
    from ..faults import FaultReport


@command("faults")
@click.option("--op", "ops", multiple=True, help="Only operators whose name matches (as in a shell).")
@click.option("--fault", "faults", multiple=True, help="Only this fault; `ignores-attribute:NAME` for one.")
@click.option("--backend", default="stub", show_default=True, help="What computes the right outputs.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the inputs.")
@click.option(
    "--at-least",
    type=SHARE,
    default=0.95,
    show_default=True,
    help="Share of faults that must be caught; below it the exit code is 1.",
)
def faults(
    ops: tuple[str, ...], faults: tuple[str, ...], backend: str, seed: int, at_least: float, as_json: bool
) -> int:
    """Put faults into a correct backend and show which of them the built-in suite misses."""
    from ..backends import backend_manager
    from ..errors import UnknownName
    from ..faults import run_faults
    from ..operators.registry import operator_registry

    failed = load_plugins(as_json)
    for pattern in ops:
        if not any(fnmatchcase(name, pattern) for name in operator_registry.names()):
            raise UnknownName("operator", pattern, operator_registry.names())
    chosen = [
        one for one in operator_registry if not ops or any(fnmatchcase(one.name, pattern) for pattern in ops)
    ]
    driver = backend_manager.select(backend)
    driver.setup()
    try:
        report = run_faults(chosen, faults, driver=driver, seed=seed)
    finally:
        driver.teardown()
    enough = report.caught_share >= at_least
    if as_json:
        print_json({**report.to_dict(), "at_least": at_least, "enough": enough, "failed_plugins": failed})
    else:
        _print(report)
    return OK if enough else FAILURES


def _print(report: FaultReport) -> None:
    from ..faults import Verdict, fault_kind

    print_table(
        ("fault", "caught", "of", "share"),
        [
            (name, caught, total, f"{caught / total:.1%}")
            for name, (caught, total) in report.by(fault_kind).items()
        ],
    )
    survivors = report.having(Verdict.SURVIVED)
    if survivors:
        echo("Not caught:")
        print_table(("operator", "fault", ""), [(one.op, one.fault, one.detail) for one in survivors])
    rules: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in report.having(Verdict.EXCLUDED):
        attribute = one.fault.partition(":")[2]
        rules[fault_kind(one), one.detail].append(f"{one.op}:{attribute}" if attribute else one.op)
    if rules:
        echo("Excluded by a rule:")
        for (fault, reason), names in sorted(rules.items()):
            echo(f"  {fault}: {reason} ({len(names)}): {' '.join(names)}")
    echo(
        f"{len(report.having(Verdict.CAUGHT))} of {report.applicable} applicable faults caught "
        f"({report.caught_share:.2%}), {report.caught_per_operator:.1f} in each operator on average"
    )
