"""``python -m benchmarks``: run the suites and print one table each; ``--json FILE`` keeps the figures."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from optest.console import WIDTH_OF_A_FILE

from . import call_overhead, compile_time, growth, models, optest_overhead, redirect_overhead
from .measure import Row

SUITES = {
    "calls": call_overhead.rows,
    "compile": compile_time.rows,
    "growth": growth.rows,
    "inference": models.inference_rows,
    "training": models.training_rows,
    "optest": optest_overhead.rows,
    "redirect": redirect_overhead.rows,
}


def main() -> int:
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


def table(title: str, rows: list[Row]) -> Table:
    made = Table("case", "candidate", "median", "ratio", "bound", "notes", title=title)
    for row in rows:
        for i, (candidate, seconds) in enumerate(row.seconds.items()):
            made.add_row(
                row.name if i == 0 else "",
                candidate,
                f"{seconds * 1e3:.3f} ms",
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
