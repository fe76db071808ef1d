"""``python -m benchmarks``: run the suites and print one table each; ``--json FILE`` keeps the figures.

``speed`` measures whole models into a folder of JSON files, ``compare`` and ``page`` read such folders;
``memory`` measures the peak memory of training steps.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from optest.console import WIDTH_OF_A_FILE

from . import (
    call_overhead,
    checkpoints,
    compile_time,
    device_overhead,
    figure,
    generation,
    growth,
    memory,
    optest_overhead,
    redirect_overhead,
    sharding,
    speed,
    steps,
)
from .measure import Row

SUITES = {
    "calls": call_overhead.rows,
    "checkpoint": checkpoints.rows,
    "compile": compile_time.rows,
    "device": device_overhead.rows,
    "generation": generation.rows,
    "growth": growth.rows,
    "optest": optest_overhead.rows,
    "redirect": redirect_overhead.rows,
    "sharding": sharding.rows,
    "steps": steps.rows,
}


def main() -> int:
    commands = {"speed": _speed, "compare": _compare, "page": _page, "memory": memory.main}
    command = commands.get(*sys.argv[1:2] or [""])
    return command(sys.argv[2:]) if command is not None else _suites()


def _speed(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description=speed.__doc__)
    parser.add_argument(
        "--models", default="classic", help="names, `classic` or `all` (default: %(default)s)"
    )
    parser.add_argument("--modes", default=",".join(speed.MODES), help="default: %(default)s")
    parser.add_argument("--batch", type=int, default=0, help="default: each model's training batch")
    parser.add_argument("--processes", type=int, default=3, help="per model and mode (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=6.0, help="per process (default: %(default)s)")
    parser.add_argument("--device", help="a GPU that PyTorch has too, as in cuda (default: the setting)")
    parser.add_argument("--out", type=Path, help="folder of the figures (default: .benchmarks/COMMIT)")
    options = parser.parse_args(arguments)
    try:
        models_chosen = speed.names_of(options.models)
    except ValueError as error:
        parser.error(str(error))
    if options.device:
        os.environ["TORCHSTONE_DEVICE"] = options.device  # inherited by the processes that measure
    modes = options.modes.split(",")
    if not set(modes) <= set(speed.MODES):
        parser.error(f"modes are {', '.join(speed.MODES)}")
    folder = options.out or Path(".benchmarks") / _commit()
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is busy (load {load:.1f}): times will be too long", file=sys.stderr)
    speed.measure(
        folder,
        models_chosen,
        modes,
        batch=options.batch,
        processes=options.processes,
        seconds=options.seconds,
    )
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    for made in speed.tables(folder):
        console.print(made)
    print(f"figures: {folder}")
    return 0


def _compare(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compare", description=speed.compare.__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    slower = speed.compare(options.before, options.after)
    print("\n".join(slower) or "nothing became slower")
    return 1 if slower else 0


def _page(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks page", description=speed.page.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/speed.md"))
    options = parser.parse_args(arguments)
    picture = options.output.with_suffix(".svg")
    picture.write_text(figure.svg(speed.read(options.folder).values()), encoding="utf-8")
    options.output.write_text(speed.page(options.folder, picture.name), encoding="utf-8")
    return 0


def _commit() -> str:
    """Return the short name of the commit that is checked out, or `unknown` outside a repository."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _suites() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "suites", nargs="*", metavar="SUITE", help=f"any of {', '.join(SUITES)}; default: all"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    unknown = set(options.suites) - set(SUITES)
    if unknown:
        parser.error(f"unknown suite(s) {sorted(unknown)}; there are {sorted(SUITES)}")
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_FILE)
    versions = f"torch {torch.__version__}, jax {importlib.metadata.version('jax')}"
    console.print(f"{versions}, {platform.machine()}, {torch.get_num_threads()} threads")
    found: list[Row] = []
    for name in options.suites or SUITES:
        rows = list(SUITES[name]())
        found += rows
        console.print(table(name, rows))
    if options.json:
        options.json.write_text(json.dumps([as_json(row) for row in found], indent=2) + "\n")
    missed = [row.name for row in found if row.held is False]
    if missed:
        console.print(f"[red]bounds missed: {', '.join(missed)}[/]")
    return 1 if missed else 0


_SHORT_S = 1e-4
"""Shorter times are shown in microseconds."""


def table(title: str, rows: list[Row]) -> Table:
    made = Table("case", "candidate", "median", "ratio", "bound", "notes", title=title)
    for row in rows:
        for i, (candidate, seconds) in enumerate(row.seconds.items()):
            made.add_row(
                row.name if i == 0 else "",
                candidate,
                f"{seconds * 1e6:.2f} µs" if seconds < _SHORT_S else f"{seconds * 1e3:.3f} ms",
                f"{row.ratio(candidate):.2f}",
                "" if i or row.held is None else f"{row.bound}: {'held' if row.held else 'MISSED'}",
                "" if i else ", ".join(f"{key}={value}" for key, value in row.notes.items()),
            )
    return made


def as_json(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "seconds": dict(row.seconds),
        "baseline": row.baseline,
        "bound": row.bound,
        "held": row.held,
        "notes": dict(row.notes),
    }


if __name__ == "__main__":
    sys.exit(main())
