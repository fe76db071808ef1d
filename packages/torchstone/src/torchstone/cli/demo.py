"""``torchstone demo``."""

from __future__ import annotations

from optest.console import FAILURES, OK, echo, print_json, print_table

from .command import command
from .output import progress


@command("demo")
def demo(as_json: bool) -> int:
    """Train a CNN on digits through the compiler, export it, reload it, and check every result.

    Needs the extra torchstone[demo]. Exits with 1 for any failure or fallback.
    """
    with progress() as stage:
        stage("loading PyTorch")
        from ..parity.demo import run_demo

        report = run_demo(stage)
    if as_json:
        print_json(report.to_dict())
    else:
        print_table(("", ""), report.rows())
        echo("\n".join(report.failures) or "passed: everything was compiled, and everything agrees")
    return OK if report.passed else FAILURES
