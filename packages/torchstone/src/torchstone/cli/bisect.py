"""``torchstone bisect``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from optest.console import FAILURES, OK, echo, print_json
from optest.options import SEED, TOLERANCE

from .command import MODEL, command, placed, settings
from .output import progress, require_files, write_whole

if TYPE_CHECKING:
    from optest.core.tolerance import Tolerance

    from ..parity.bisect import Report


_SCRIPT = "Write a script that shows what departs by itself, on tensors made small."


@command("bisect")
@MODEL
@click.option("--optimizer", default="AdamW", show_default=True, help="A class of torch.optim.")
@click.option("--no-optimizer", is_flag=True, help="Compare forward and backward only.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="What every run starts from.")
@click.option("--rtol", type=TOLERANCE, help="Relative tolerance of what departs.")
@click.option("--atol", type=TOLERANCE, help="Absolute tolerance of what departs.")
@click.option(
    "--fresh-process/--no-fresh-process",
    default=True,
    help="Repeat the eager run in a fresh process too, where sets have another order (default).",
)
@click.option("--script", type=click.Path(dir_okay=False, path_type=Path), help=_SCRIPT)
@placed
def bisect(
    model: str,
    optimizer: str,
    no_optimizer: bool,
    seed: int,
    rtol: float | None,
    atol: float | None,
    fresh_process: bool,
    script: Path | None,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Find the first value of MODEL that departs from eager PyTorch's, and say why.

    Compares every value of one training step, through torch.compile and compile_step. Reports whether
    the cause is the lowering, the engine, legitimate rounding or the model's own nondeterminism. Exits
    with 1 if a value departs.
    """
    require_files(script=script)
    with progress() as stage, settings(device=device, engine=engine):
        stage("loading the model")
        from ..parity.bisect import bisect as bisect_model
        from ..parity.bisect.arbiter import Judge
        from ..parity.model import load_model

        tolerance = _tolerance(rtol, atol)
        found = bisect_model(
            load_model(model),
            optimizer=None if no_optimizer else optimizer,
            seed=seed,
            tolerance=tolerance,
            fresh_process=fresh_process,
            progress=stage,
        )
        text = None
        if script is not None and found.finding is not None:
            from ..parity.bisect.script import script_of

            stage("making the finding small")
            text = script_of(found, Judge(tolerance), seed)
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    if script is not None and text is not None:
        write_whole(script, text.encode("utf-8", "backslashreplace"))
    return OK if found.finding is None else FAILURES


def _tolerance(rtol: float | None, atol: float | None) -> Tolerance | None:
    """Return the tolerance of the options; if only one is given, the other is float32's default."""
    from optest.core.tolerance import Tolerance, default_tolerance

    if rtol is None and atol is None:
        return None
    default = default_tolerance("float32")
    return Tolerance(default.rtol if rtol is None else rtol, default.atol if atol is None else atol)


def _print(report: Report) -> None:
    found = report.finding
    if found is None:
        echo(f"{report.model}: nothing departs; {report.values} values compared on {report.engine}")
    else:
        echo(f"{report.model}: the first value that departs is {found.value} ({found.phase}): {found.kind}")
        for label, text in (
            ("operator", found.operator),
            ("line", found.line),
            ("module", found.module),
            ("graph", found.road),
            ("why", found.reason),
        ):
            if text:
                echo(f"  {label}: {text}")
        for name, said in found.engines.items():
            echo(f"  {name}: {said}")
        if found.comparison is not None:
            echo("  " + found.comparison.describe().replace("\n", "\n  "))
    for note in report.notes:
        echo(f"note: {note}")
