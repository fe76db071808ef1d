"""Records the results of `torchstone parity` on its suite, for the table in ``docs/parity.md``.

    python tools/parity_runs.py                        # runs what is not recorded yet, one model at a time
    python tools/parity_runs.py --fold REPORT.json …   # records reports of `torchstone parity --json`

The record is ``docs/parity-runs.json``; ``make docs`` writes the table. Delete the record to start anew.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from markdown_tables import table

from torchstone.parity.suite import SUITE
from torchstone.parity.zoo import ARCHITECTURES

RECORD = Path(__file__).resolve().parent.parent / "docs" / "parity-runs.json"
TRANSFORMERS = ("bert", "gpt2", "llama", "vit", "mixtral")
WANTED = [
    *((name, "float32") for name in SUITE),
    *((name, "bfloat16") for name in TRANSFORMERS),
    *((name, "float32") for name in ARCHITECTURES),
]
"""The models and dtypes that have a line in the table."""


def folded(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the record of each model in one report."""
    for model in report["models"]:
        yield {
            "model": model["name"],
            "dtype": report["settings"]["dtype"],
            "passed": model["passed"],
            "operators": model["compilation"]["native_operators"],
            "fallbacks": model["compilation"]["fallback_calls"],
            "stages": {stage["stage"]: stage["verdict"] for stage in model["stages"]},
            "tensors": sum(stage["tensors"] for stage in model["stages"]),
            "by_float64": sum(stage["by_float64"] for stage in model["stages"]),
            "versions": {name: version(name) for name in ("torchstone", "torch", "jaxlib")},
        }


def read(path: Path) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return runs


def keep(path: Path, reports: Sequence[Mapping[str, Any]]) -> None:
    """Add the runs of ``reports`` to the record. Each replaces an older run of its model and dtype."""
    runs = {(run["model"], run["dtype"]): run for run in read(path)}
    runs |= {(run["model"], run["dtype"]): run for report in reports for run in folded(report)}
    order = [*(key for key in WANTED if key in runs), *(key for key in runs if key not in WANTED)]
    path.write_text(json.dumps([runs[key] for key in order], indent=1) + "\n", encoding="utf-8")


def section(path: Path = RECORD) -> str:
    """The table of the recorded runs."""
    runs = read(path)
    made = sorted({", ".join(f"{name} {one}" for name, one in run["versions"].items()) for run in runs})
    passed = sum(run["passed"] for run in runs)
    rows = [
        [
            run["model"],
            run["dtype"],
            ", ".join(f"{stage} {verdict}" for stage, verdict in run["stages"].items() if verdict != "passed")
            or "passed",
            str(run["operators"]),
            str(run["fallbacks"]),
            f"{run['tensors']:,}",
            f"{run['by_float64']:,}",
        ]
        for run in runs
    ]
    header = ("model", "dtype", "all stages", "operators", "fallbacks", "tensors compared", "by rounding")
    return (
        f"{passed} of {len(runs)} runs passed, recorded by `python tools/parity_runs.py` with "
        f"{'; '.join(made)}. *By rounding* counts tensors outside the tolerance that the runs with other "
        f"roundings judged.\n\n{table(header, rows)}"
    )


def report_of(model: str, dtype: str) -> dict[str, Any]:
    """Return the report of `torchstone parity` on one model. Exit if it prints none."""
    command = [sys.executable, "-m", "torchstone", "parity", model, "--dtype", dtype, "--json"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    try:
        report: dict[str, Any] = json.loads(ran.stdout)
    except json.JSONDecodeError:
        raise SystemExit(
            f"parity_runs: `{shlex.join(command[1:])}` printed no report (exit code {ran.returncode}); "
            "what it says is above\n  next: mend that, then run this command again: it keeps what is recorded"
        ) from None
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record `torchstone parity` for the documentation.")
    parser.add_argument("--fold", nargs="+", type=Path, metavar="REPORT", help="record these reports")
    options = parser.parse_args(arguments)
    if options.fold:
        keep(RECORD, [json.loads(path.read_text("utf-8")) for path in options.fold])
        return 0
    known = {(run["model"], run["dtype"]) for run in read(RECORD)}
    for model, dtype in WANTED:
        if (model, dtype) not in known:
            keep(RECORD, [report_of(model, dtype)])
    return 0 if all(run["passed"] for run in read(RECORD)) else 1


if __name__ == "__main__":
    sys.exit(main())
