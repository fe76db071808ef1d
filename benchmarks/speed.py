"""The speed of whole models: several processes per model, each with a JSON file, and tables of the files.

``python -m benchmarks speed`` resumes: it does not measure again if the file is there. ``python -m benchmarks
compare A B`` says what became slower from folder A to folder B.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from .networks import CLASSICS, NETWORKS, TRAINING_BATCH

MODES = ("inference", "training")
SLOWER = 1.05
"""A time is reported as slower if it is this many times the earlier one and the spreads do not overlap."""


@dataclass(frozen=True)
class Figures:
    """The joined figures of all processes of one model, mode and batch."""

    name: str
    mode: str
    seconds: Mapping[str, float]
    low: Mapping[str, float]
    high: Mapping[str, float]
    ratios: Mapping[str, float]
    """Eager's time divided by each candidate's: the median over pairs of neighboring blocks."""
    single_ratios: Mapping[str, float]
    cold_s: Mapping[str, float]
    warm_s: Mapping[str, float]
    share: float
    memory: float
    failed: Mapping[str, str]


def measure(
    folder: Path, models: Sequence[str], modes: Sequence[str], *, batch: int, processes: int, seconds: float
) -> None:
    """Run what ``folder`` does not have yet. A model that fails is named, and tried again next time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        for mode in modes:
            rows = batch or TRAINING_BATCH[name]
            with tempfile.TemporaryDirectory() as caches:
                for process in range(processes):
                    file = folder / f"{name}-{mode}-{rows}-{process}.json"
                    if not file.exists():
                        _measure_one(file, [name, mode, str(rows), str(seconds)], caches, process)


def _measure_one(file: Path, arguments: Sequence[str], caches: str, process: int) -> None:
    """Run one process. The first process of a model finds empty caches, and fills them for the others."""
    environment = {
        **os.environ,
        "TORCHSTONE_CACHE_DIR": f"{caches}/torchstone",
        "TORCHINDUCTOR_CACHE_DIR": f"{caches}/inductor",
    }
    command = [sys.executable, "-m", "benchmarks.candidate_run", *arguments]
    print(file.stem, file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        found = json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None
    except subprocess.TimeoutExpired:
        print("  took more than 900 s", file=sys.stderr)
        return
    if found is None:
        print(f"  exit {done.returncode}: {done.stderr.strip()[-500:]}", file=sys.stderr)
        return
    temporary = file.with_suffix(".tmp")
    temporary.write_text(json.dumps({**found, "process": process, "cold": process == 0}, indent=1) + "\n")
    temporary.replace(file)


def read(folder: Path) -> dict[str, Figures]:
    """Return the figures in a folder, by model, mode and batch."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(folder.glob("*.json")):
        groups.setdefault(file.stem.rpartition("-")[0], []).append(json.loads(file.read_text()))
    return {key: _joined(runs) for key, runs in groups.items()}


def _joined(runs: Sequence[Mapping[str, Any]]) -> Figures:
    names = [name for name in runs[0]["seconds"] if all(name in run["seconds"] for run in runs)]
    blocks = {name: [s for run in runs for s in run["seconds"][name]] for name in names}
    medians = {name: statistics.median(values) for name, values in blocks.items()}
    pairs = {n: [e / s for e, s in zip(blocks["eager"], blocks[n], strict=True)] for n in names}
    first = runs[0]
    warm = [run["first_call_s"] for run in runs if not run["cold"]]
    limit = statistics.median(run["limit_s"] for run in runs)
    return Figures(
        name=f"{first['model']} ({first['batch']})",
        mode=first["mode"],
        seconds=medians,
        low={name: min(values) for name, values in blocks.items()},
        high={name: max(values) for name, values in blocks.items()},
        ratios={name: statistics.median(values) for name, values in pairs.items()},
        single_ratios={
            n: statistics.median(r["single_s"]["eager"] / r["single_s"][n] for r in runs) for n in names
        },
        cold_s=next((run["first_call_s"] for run in runs if run["cold"]), {}),
        warm_s={n: statistics.median(w[n] for w in warm) for n in names if warm},
        share=limit / medians["torchstone"] if "torchstone" in medians else 0.0,
        memory=max(run["peak_memory_bytes"] for run in runs),
        failed={name: text for run in runs for name, text in run["failed"].items()},
    )


COLUMNS = (
    "model (batch)",
    "eager, ms",
    "Inductor, ms",
    "Torchstone, ms",
    "spread",
    "Inductor ×",
    "Torchstone ×",
    "whole step ×",
    "single calls ×",
    "of the limit",
    "cold, s",
    "warm, s",
)


def table_rows(figures: Iterable[Figures], mode: str) -> list[list[str]]:
    """Return one row per model, and a row with the geometric means of the speedups over eager."""
    chosen = [f for f in figures if f.mode == mode]
    rows = [_row(f) for f in chosen]
    if chosen:
        means = {
            n: _mean([f.ratios[n] for f in chosen if n in f.ratios])
            for n in ("inductor", "torchstone", "step")
        }
        single = _mean([f.single_ratios["torchstone"] for f in chosen if "torchstone" in f.single_ratios])
        blank = [""] * 4
        rows.append(["geometric mean", *blank, *means.values(), single, "", "", ""])
    return rows


def _row(f: Figures) -> list[str]:
    def ms(name: str) -> str:
        return f"{f.seconds[name] * 1e3:.2f}" if name in f.seconds else "failed"

    def of(table: Mapping[str, float], digits: int = 2) -> str:
        return f"{table['torchstone']:.{digits}f}" if "torchstone" in table else "-"

    spread = "-"
    if "torchstone" in f.seconds:
        spread = f"{f.low['torchstone'] * 1e3:.2f} to {f.high['torchstone'] * 1e3:.2f}"

    def ratio(name: str) -> str:
        return f"{f.ratios[name]:.2f}" if name in f.ratios else "-"

    return [
        f.name,
        ms("eager"),
        ms("inductor"),
        ms("torchstone"),
        spread,
        *map(ratio, ("inductor", "torchstone", "step")),
        of(f.single_ratios),
        f"{f.share:.0%}",
        of(f.cold_s, 1),
        of(f.warm_s, 1),
    ]


def _mean(ratios: Sequence[float]) -> str:
    return f"{math.exp(statistics.fmean(map(math.log, ratios))):.2f}" if ratios else "-"


def tables(folder: Path) -> list[Table]:
    """One table per mode, for the terminal."""
    found = read(folder)
    made = []
    for mode in MODES:
        rows = table_rows(found.values(), mode)
        if rows:
            made.append(Table(*COLUMNS, title=mode))
            for row in rows:
                made[-1].add_row(*row)
    return made


_PAGE = """\
Written by `python -m benchmarks page`. Times are medians over blocks of calls that take turns, in one
process or more per model. × is eager's time over the candidate's: more than 1 is faster than eager.
Torchstone is `torch.compile(backend="torchstone")`, in training with the eager optimizer, as
Inductor; the whole step is `torchstone.compile_step`, with the optimizer in the program. The spread
is that of Torchstone's blocks. The limit is what the machine's peaks of matrix products and of memory
bandwidth, measured in the same processes, allow for the model's FLOPs and weights; operators that
PyTorch's counter does not know, such as recurrent ones, are left out. Cold and warm are Torchstone's
first call without and with its cache on disk."""


def page(folder: Path, picture: str) -> str:
    """The figures as a page of the documentation, which shows the picture in the given file."""
    machines = sorted({_machine(json.loads(file.read_text())) for file in folder.glob("*.json")})
    parts = ["# Speed of whole models", "", _PAGE, "", *(f"Measured on: {one}." for one in machines), ""]
    parts += [f"![How many times as fast as eager each candidate is]({picture})"]
    found = read(folder)
    for mode in MODES:
        rows = table_rows(found.values(), mode)
        if rows:
            lines = [COLUMNS, ["---"] * len(COLUMNS), *rows]
            parts += ["", f"## {mode.capitalize()}", ""]
            parts += ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join(parts) + "\n"


def _machine(run: Mapping[str, Any]) -> str:
    return ", ".join([run["machine"], *(f"{name} {version}" for name, version in run["versions"].items())])


def compare(before: Path, after: Path) -> list[str]:
    """What became slower: one line per model whose blocks are slower than those of the earlier run."""
    old, new = read(before), read(after)
    slower = []
    for key in sorted(old.keys() & new.keys()):
        a, b = old[key], new[key]
        if "torchstone" not in a.seconds or "torchstone" not in b.seconds:
            if "torchstone" in a.seconds:
                slower.append(f"{a.name} {a.mode}: fails now: {b.failed.get('torchstone', '')}")
            continue
        was, now = a.seconds["torchstone"], b.seconds["torchstone"]
        if now > SLOWER * was and b.low["torchstone"] > a.high["torchstone"]:
            slower.append(
                f"{a.name} {a.mode}: {was * 1e3:.2f} ms before, {now * 1e3:.2f} ms now ({now / was:.2f} ×)"
            )
    missing = sorted(old.keys() - new.keys())
    return slower + [f"{key}: not measured in {after}" for key in missing]


def names_of(text: str) -> list[str]:
    """Return the models in a comma-separated list. ``classic`` and ``all`` stand for lists of models."""
    chosen: list[str] = []
    for name in text.split(","):
        chosen += CLASSICS if name == "classic" else NETWORKS if name == "all" else [name]
    unknown = sorted(set(chosen) - set(NETWORKS))
    if unknown:
        raise ValueError(f"unknown model(s) {unknown}; there are {sorted(NETWORKS)}, classic and all")
    return list(dict.fromkeys(chosen))
