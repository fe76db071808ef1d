"""Runs every model of the inventory on every engine and records the outcome of each pair.

    python tools/engine_matrix.py     # resumes where it stopped

The artifacts run in a child process: one that crashes or hangs costs only its own cell. The
results go to ``docs/engines-matrix.json``; ``make docs`` writes the page from them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from markdown_tables import WRITTEN, table

from torchstone.parity.inventory import models
from torchstone.parity.inventory.journal import Journal

ENGINES = {"pjrt": "XLA", "reference": "interpreter", "iree": "IREE", "jax": "plain JAX"}
"""The name of each engine, and its heading on the page."""
EQUAL = "equal"
RESULTS = Path(__file__).resolve().parent.parent / "docs" / "engines-matrix.json"
SECONDS = 600.0
"""The time limit for one cell, including the export of its model."""

PAGE = """\
# Engines

{total} models of [the inventory](inventory/README.md), each saved as an artifact and run by every engine:
XLA through PJRT, the reference interpreter, IREE, and JAX's own `jit`. A cell says *equal* where all results
agree with eager PyTorch within tolerance.

Recorded by `python tools/engine_matrix.py` with {versions}.
"""


def record(path: Path, names: Sequence[str]) -> None:
    """Run the cells that are not in the journal. Write the results when the last cell is there."""
    origin = {"versions": versions(), "models": list(names)}
    with Journal(path, origin) as journal:
        done = {(one["model"], one["engine"]) for one in journal.lines}
        child = _Child()
        for name in names:
            for engine in ENGINES:
                if (name, engine) not in done:
                    outcome = child.run(name, engine)
                    sys.stderr.write(f"{name} on {engine}: {outcome}\n")
                    journal.add({"model": name, "engine": engine, "outcome": outcome})
        child.stop()
    outcomes = {(one["model"], one["engine"]): one["outcome"] for one in journal.lines}
    cells = {name: {engine: outcomes[name, engine] for engine in ENGINES} for name in names}
    journal.finish({**origin, "cells": cells})


def versions() -> dict[str, str]:
    """Return the versions of all packages that a cell depends on."""
    from importlib.metadata import version

    packages = ("torchstone", "torch", "jax", "jaxlib", "iree-base-compiler", "iree-base-runtime")
    return {package: version(package) for package in packages}


class _Child:
    """A process that runs cells. It is started again after it dies or takes too long."""

    def __init__(self) -> None:
        self._process: Any = None

    def run(self, name: str, engine: str) -> str:
        if self._process is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        self._pipe.send((name, engine))
        try:
            if self._pipe.poll(SECONDS):
                return str(self._pipe.recv())
            self._process.kill()
            self._forget()
            return f"took longer than {SECONDS:g} s"
        except EOFError:
            return f"ended its process (exit code {self._forget()})"

    def stop(self) -> None:
        if self._process is not None:
            self._pipe.close()
            self._forget()

    def _forget(self) -> int | None:
        process, self._process = self._process, None
        process.join()
        code: int | None = process.exitcode
        return code


def _serve(pipe: Connection) -> None:
    """Answer requests until the other end closes. Keep an artifact until a request names another model."""
    kept = ""
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        path = Path(folder, "model.stone")
        while True:
            try:
                name, engine = pipe.recv()
            except EOFError:
                return
            pipe.send(_outcome(name, engine, path, fresh=name != kept))
            kept = name


def _outcome(name: str, engine: str, path: Path, *, fresh: bool) -> str:
    """Return the outcome of one cell, as one line of text."""
    import warnings

    from torchstone.errors import TorchstoneError
    from torchstone.parity.examples import check_artifact, save
    from torchstone.parity.zoo import INVENTORY

    warnings.simplefilter("ignore")
    example = INVENTORY[name].make()
    try:
        if fresh:
            save(example, path)
        found = check_artifact(example, path, engine=engine)
    except TorchstoneError as error:
        return " ".join(error.message.split())
    except Exception as error:  # noqa: BLE001 - a cell says what happened
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    wrong = [each.summary() for each in found if not each.passed]
    return f"differs: {wrong[0]}" if wrong else EQUAL if found else "it has no results"


def page(recorded: Mapping[str, Any]) -> str:
    """Return the page of the recorded cells: totals, the reason for each unequal cell, then each model."""
    cells: Mapping[str, Mapping[str, str]] = recorded["cells"]
    families = {entry.name: entry.family for entry in models()}
    equal = Counter(engine for row in cells.values() for engine, text in row.items() if text == EQUAL)
    share = [
        (heading, f"`{engine}`", f"{equal[engine]} of {len(cells)} ({equal[engine] / len(cells):.0%})")
        for engine, heading in ENGINES.items()
    ]
    rows = [
        (f"`{name}`", families[name], *(EQUAL if row[one] == EQUAL else "**no**" for one in ENGINES))
        for name, row in cells.items()
    ]
    reasons = [
        (f"`{name}`", ENGINES[engine], text)
        for name, row in cells.items()
        for engine, text in row.items()
        if text != EQUAL
    ]
    introduction = PAGE.format(
        total=len(cells),
        versions=", ".join(f"{name} {version}" for name, version in recorded["versions"].items()),
    )
    parts = [WRITTEN, introduction, table(("engine", "name", "models equal"), share)]
    parts += ["## What is not equal\n", table(("model", "engine", "why"), reasons)] if reasons else []
    parts += ["## Models\n", table(("model", "family", *ENGINES.values()), rows)]
    return "\n".join(parts)


def pages(root: Path) -> dict[Path, str]:
    """Return the page's path and text."""
    path = root / "docs" / RESULTS.name
    return {path.with_suffix(".md"): page(json.loads(path.read_text("utf-8")))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Record the matrix."""
    parser = argparse.ArgumentParser(description="Run the inventory's models on every engine.")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"default: docs/{RESULTS.name}")
    parser.add_argument("models", nargs="*", help="default: all models of the inventory")
    options = parser.parse_args(arguments)
    record(options.out, options.models or [entry.name for entry in models()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
