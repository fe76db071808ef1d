"""What optest itself costs: planning, running and reporting stub cases, and isolating them in processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measure import Row

CASES = 100_000
MOST_S, MOST_MIB = 60.0, 500.0
ISOLATION_MS = 5.0

_OPERATORS = [
    "abs", "neg", "sign", "ceil", "floor", "square", "sqrt", "exp", "log", "sin", "cos", "atan", "mul",
    "maximum", "minimum", "atan2", "relu", "silu", "sigmoid", "tanh",
]  # fmt: skip
_PLAN = """\
cases:
  - op: [{operators}]
    dtypes: [float32, float16]
    shapes: {shapes}
"""

_RUN = """
import json, resource, sys, time
started = time.perf_counter()
from optest.cli.app import cli
code = cli.main(sys.argv[1:], standalone_mode=False)
used = resource.getrusage(resource.RUSAGE_SELF)
figures = {"code": code, "seconds": time.perf_counter() - started}
figures |= {"mib": used.ru_maxrss / 1024, "cpu_s": used.ru_utime + used.ru_stime}
print(json.dumps(figures), file=sys.stderr)
"""


def _run(folder: Path, *words: str) -> dict[str, float]:
    """Run ``optest run`` in its own process. Return exit code, seconds, CPU seconds and peak MiB."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, "run", *words],
        cwd=folder,
        env={**os.environ, "OPTEST_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=True,
    )
    figures: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    assert figures["code"] == 0, done.stdout[-2000:]
    return figures


def _plan(folder: Path, cases: int) -> str:
    """Write a plan of ``cases`` cases with only some hundred elements, so that NumPy takes little time."""
    each = cases // (2 * len(_OPERATORS))
    shapes = [[1 + i % 8, 1 + i // 8 % 8, 1 + i // 64] for i in range(each)]
    file = folder / "plan.yaml"
    file.write_text(_PLAN.format(operators=", ".join(_OPERATORS), shapes=json.dumps(shapes)))
    return str(file)


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reports = [word for kind in ("json", "junit", "html") for word in ("--report", kind)]
        found = _run(folder, "--plan", _plan(folder, CASES), "--backend", "stub", *reports)
    yield Row(
        f"{CASES} stub cases: plan, run, JSON, JUnit, HTML, ledger, journal",
        {"optest": found["seconds"]},
        "optest",
        f"≤ {MOST_S:g} s and ≤ {MOST_MIB:g} MiB",
        found["seconds"] <= MOST_S and found["mib"] <= MOST_MIB,
        {
            "peak_mib": round(found["mib"]),
            "cpu_s": round(found["cpu_s"], 1),
        },  # wall time suffers from neighbours
    )

    few, many = 400, 2400
    seconds: dict[tuple[str, int], float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in (few, many):
            plan = _plan(folder, count)
            for label, words in (("in process", []), ("isolated", ["--timeout", "60"])):
                found = _run(folder, "--plan", plan, "--backend", "stub", "--ledger", "none", *words)
                seconds[label, count] = found["seconds"]
    each = {
        label: (seconds[label, many] - seconds[label, few]) / (many - few)
        for label in ("in process", "isolated")
    }  # the difference leaves out the fixed cost of a process
    extra = each["isolated"] - each["in process"]
    yield Row(
        "one stub case",
        each,
        "in process",
        f"isolation ≤ {ISOLATION_MS:g} ms a case",
        extra <= ISOLATION_MS / 1e3,
        {"isolation_ms": round(1e3 * extra, 3)},
    )
