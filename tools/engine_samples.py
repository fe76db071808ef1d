"""Runs PyTorch's operator samples on an engine, and records which database entries agree with eager PyTorch.

    python tools/engine_samples.py                 # float32 on IREE; resumes where it stopped
    python tools/engine_samples.py --engine jax

``optest`` runs them in processes that may crash, with the ledger ``build/engine-samples-ENGINE.sqlite``.
The results go to ``docs/engines-samples.json``; ``make docs`` writes the page from them.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from engine_matrix import ENGINES, versions
from markdown_tables import WRITTEN, table

from optest.core.result import Status
from optest.ledger.reading import CaseRow
from optest.ledger.store import Ledger

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "engines-samples.json"
DTYPE = "float32"
MOST = 4
"""How many samples run of each group of samples that call the same operators."""

PAGE = """\
# Operators on other engines

PyTorch's operator database on engines other than XLA, each sample as an artifact. An entry is equal if every
sample that was tried agrees with eager PyTorch. Of the samples of an entry that call the same operators,
at most {most} were tried. [Models on every engine](engines-matrix.md) has the models of the inventory.
"""
SECTION = """\
## {heading}

{equal} of {total} entries are equal in {dtype} ({share:.0%}). {untestable} more cannot be tested: they give
no tensor, or need CUDA's compiler.

Recorded by `python tools/engine_samples.py --engine {engine}` with {versions}.
"""


def run(engine: str, ledger: Path) -> None:
    """Run the samples that an earlier call has not run."""
    words = ["run", "--suite", "opinfo", "--backend", f"torchstone:{engine}", "--dtype", DTYPE]
    words += ["--phase", "forward", "--most", str(MOST), "--timeout", "120", "--ledger", str(ledger)]
    code = subprocess.run(
        [sys.executable, "-m", "optest", *words, "--resume"], cwd=ROOT, check=False
    ).returncode
    if code not in (0, 1):  # 1: some are not equal
        raise SystemExit(f"optest run ended with {code}; the same command goes on from there")


def summed_up(rows: Iterable[CaseRow]) -> dict[str, Any]:
    """Return how many entries were tested, which cannot be tested, and why entries are not equal."""
    entries: dict[str, list[CaseRow]] = {}
    for row in rows:
        entries.setdefault(row.op, []).append(row)
    tested = {
        name: [row for row in found if row.status is not Status.SKIPPED] for name, found in entries.items()
    }
    wrong = {
        name: next((row.reason for row in found if row.status is not Status.PASSED), None)
        for name, found in tested.items()
        if found
    }
    return {
        "entries": len(wrong),
        "untestable": sorted(name for name, found in tested.items() if not found),
        "unequal": {name: _in_a_line(reason) for name, reason in wrong.items() if reason is not None},
    }


def _in_a_line(reason: str) -> str:
    """Return ``reason`` as one line, without the hint ``next:``, which is meant for the user of optest."""
    return " ".join(reason.partition("\n  next:")[0].split())


def record(engine: str, ledger: Path, path: Path) -> None:
    """Record the newest run in ``ledger`` as the results of ``engine``. Keep those of other engines."""
    kept = Ledger(ledger, create=False)
    found = summed_up(kept.cases(kept.runs()[-1].run_id))
    kept.close()
    before = json.loads(path.read_text("utf-8")) if path.exists() else {}
    made = {**before, engine: {"versions": versions(), "dtype": DTYPE, **found}}
    path.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", "utf-8")


def section(engine: str, recorded: Mapping[str, Any]) -> str:
    """Return the section of the page about one engine."""
    unequal: Mapping[str, str] = recorded["unequal"]
    total = recorded["entries"]
    introduction = SECTION.format(
        heading=ENGINES[engine],
        engine=engine,
        equal=total - len(unequal),
        total=total,
        share=(total - len(unequal)) / total,
        dtype=recorded["dtype"],
        untestable=len(recorded["untestable"]),
        versions=", ".join(f"{name} {version}" for name, version in recorded["versions"].items()),
    )
    return "\n".join(
        [introduction, table(("entry", "why"), [(f"`{name}`", why) for name, why in unequal.items()])]
    )


def pages(root: Path) -> dict[Path, str]:
    """Return the page's path and text."""
    path = root / "docs" / RESULTS.name
    recorded = json.loads(path.read_text("utf-8"))
    parts = [section(engine, recorded[engine]) for engine in ENGINES if engine in recorded]
    return {path.with_suffix(".md"): "\n".join([WRITTEN, PAGE.format(most=MOST), *parts])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the samples and record them."""
    parser = argparse.ArgumentParser(description="Run PyTorch's operator samples on an engine.")
    parser.add_argument("--engine", default="iree", choices=ENGINES, help="default: iree")
    options = parser.parse_args(arguments)
    ledger = ROOT / "build" / f"engine-samples-{options.engine}.sqlite"
    run(options.engine, ledger)
    record(options.engine, ledger, RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main())
