"""``torchstone profile``."""

from __future__ import annotations

from pathlib import Path

import click

from optest.console import OK, echo, print_json, print_table
from optest.options import REPEATS

from .command import MODEL, command, placed, settings
from .output import progress


@command("profile")
@MODEL
@click.option("--train", is_flag=True, help="Profile whole training steps in place of inference.")
@click.option("--calls", type=REPEATS, default=10, show_default=True, help="Calls that are timed.")
@click.option("--top", type=click.IntRange(min=1), default=15, show_default=True, help="Rows of each table.")
@click.option("--trace", type=click.Path(path_type=Path, dir_okay=False), help="Also write a Chrome trace.")
@click.option("--roofline/--no-roofline", default=True, help="Measure the machine's peaks first (default).")
@placed
def profile(
    model: str,
    train: bool,
    calls: int,
    top: int,
    trace: Path | None,
    roofline: bool,
    device: str | None,
    engine: str | None,
    as_json: bool,
) -> int:
    """Show where the time of MODEL goes: operators, modules, kernels, phases of compilation.

    Besides times, the report has FLOPs, bytes, the place on the roofline, copies, cache hits,
    recompilations and memory. The engine's own profiler measures them. Untimed calls warm up first.
    """
    with progress() as stage, settings(device=device, engine=engine):
        stage("loading the model")
        from ..parity.model import load_model
        from ..profiling import measure_peaks, profile_model
        from ..profiling.report import summary, tables

        loaded = load_model(model)
        peaks = None
        if roofline:
            stage("measuring the machine's peaks")
            peaks = measure_peaks()
        stage("compiling and running the model")
        found = profile_model(loaded.model, loaded.args, loaded.kwargs, train=train, calls=calls, peaks=peaks)
    if trace is not None:
        try:
            found.save_chrome_trace(trace)
        except OSError as error:
            raise click.FileError(str(trace), hint=error.strerror or str(error)) from error
    if as_json:
        print_json({"model": model, "mode": "training" if train else "inference", **found.to_dict()})
        return OK
    data = found.to_dict()
    for table in tables(data, top):
        print_table(table.columns, table.rows, title=table.title)
    for line in summary(data):
        echo(line)
    return OK
