"""Records optest's results for the eager device, for the table in ``docs/device.md``.

    optest run --suite opinfo --backend torch:pjrt --dtype float32 --ledger LEDGER
    python tools/device_runs.py LEDGER…

The record is ``docs/device-runs.json``. ``make docs`` writes the table, with the compiler's figures from
``COVERAGE.md`` beside it. A later record of a phase and dtype replaces the older one.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markdown_tables import table

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "docs" / "device-runs.json"
COMPILER = ROOT / "COVERAGE.md"
BACKEND = "torch:pjrt"
PHASES = (
    *("forward", "backward", "views", "inplace", "out", "noncontiguous"),
    *("errors", "memory", "transfer", "perf"),
)
FACTS = ("commit", "torch", "jaxlib", "torchstone")
WORDS = 160
"""How many characters of a reason are kept."""

_CASES = """
select cases.phase, cases.dtypes, cases.op, cases.case_id, cases.status, cases.reason, environments.facts
from cases join runs using (run_id)
join backends on backends.id = runs.backend join environments on environments.id = runs.environment
where backends.name = ? order by runs.started, cases.id
"""


def folded(ledgers: Sequence[Path]) -> list[dict[str, Any]]:
    """Return a record per phase and dtype, from each case's newest result, with the entries that fail."""
    newest: dict[tuple[str, str], dict[str, tuple[Any, ...]]] = defaultdict(dict)
    for ledger in ledgers:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as store:
            for phase, dtype, op, case, status, reason, facts in store.execute(_CASES, (BACKEND,)):
                newest[phase, dtype][case] = (op, status, reason, facts)
    return [_record(phase, dtype, list(found.values())) for (phase, dtype), found in newest.items()]


def _record(phase: str, dtype: str, cases: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    judged = {op for op, status, *_ in cases if status != "skipped"}
    wrong = {
        op: f"{status}: {' '.join(reason.split())[:WORDS]}"
        for op, status, reason, _ in cases
        if status not in ("passed", "skipped")
    }
    made: dict[str, set[str]] = defaultdict(set)
    for *_, facts in cases:
        for name, value in json.loads(facts).items():
            if name in FACTS:
                made[name].add(str(value))
    return {
        "phase": phase,
        "dtype": dtype.strip('[]"'),
        "entries": len(judged),
        "right": len(judged - wrong.keys()),
        "cases": dict(sorted(Counter(status for _, status, *_ in cases).items())),
        "not_right": dict(sorted(wrong.items())),
        "versions": {name: sorted(values) for name, values in sorted(made.items())},
    }


def read(path: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return runs


def keep(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    """Write ``records`` into the file, in the order of phases."""
    runs = {(run["phase"], run["dtype"]): run for run in (*read(path), *records)}
    order = sorted(runs, key=lambda key: (key[1] != "float32", key[1], PHASES.index(key[0])))
    path.write_text(json.dumps([runs[key] for key in order], indent=1) + "\n", encoding="utf-8")


def compiler_figures(page: str) -> dict[tuple[str, str], str]:
    """Return figures such as ``"668/671"`` by phase and dtype, from the table of ``COVERAGE.md``."""
    header: list[str] = []
    found: dict[tuple[str, str], str] = {}
    for line in page.splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")]
        if cells[0] == "dtype":
            header = cells
        elif header and line.startswith("|") and not cells[0].startswith("-"):
            dtype = cells[0].replace("\\", "")
            found |= {(phase, dtype): one for phase, one in zip(header, cells, strict=False) if "/" in one}
        elif header and not line.startswith("|"):
            break
    return found


def section(path: Path = RECORD, page: Path = COMPILER) -> str:
    """Return the table of the recorded runs, with the compiler's figures beside them."""
    runs = read(path)
    beside = compiler_figures(page.read_text("utf-8"))
    rows = [
        (
            run["phase"],
            run["dtype"],
            f"{run['right']}/{run['entries']}",
            f"{100 * run['right'] / run['entries']:.1f} %",
            f"{sum(run['cases'].values()) - run['cases'].get('skipped', 0):,}",
            beside.get((run["phase"], run["dtype"]), ""),
        )
        for run in runs
    ]
    wrong: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for op, reason in run["not_right"].items():
            wrong[op].add(f"{run['phase']} {reason.partition(':')[0]}")
    left = "; ".join(f"`{op}` ({', '.join(sorted(why))})" for op, why in sorted(wrong.items()))
    header = ("phase", "dtype", "`pjrt`, eager", "share", "samples", "compiler")
    return (
        "Operators of PyTorch's `op_db` of which every recorded sample passes, of all that have one."
        "\nWhat ran on the CPU is not right. The compiler's figures are from [COVERAGE.md](../COVERAGE.md)."
        "\nWhere they are of more operators, the run on the device has not reached all.\n\n"
        f"{table(header, rows)}\nNot right: {left or 'none'}.\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record optest's runs of the device for the documentation.")
    parser.add_argument("ledgers", nargs="+", type=Path, metavar="LEDGER")
    options = parser.parse_args(arguments)
    keep(RECORD, folded(options.ledgers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
