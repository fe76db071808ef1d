"""The results of running the inventory: recording them in a file, resuming, and summing up.

``results.json`` is part of the package and is written by :func:`record`. Not here:
how one operator or model is run (:mod:`.operator_runs`, :mod:`.model_runs`).
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..installation import installed_versions
from . import Entry, models, operators
from .journal import Journal

Row = dict[str, Any]
"""The results of one operator: family, name, calls, status, composites, backward, dtypes, reason.

A model has neither calls nor dtypes, but ``batch``: the batch sizes at which one program is equal to eager.
``status`` is one of ``STATUSES``. ``backward`` is ``equal``, ``none`` (eager PyTorch differentiates nothing)
or ``differs``.
"""

STATUSES = {
    "composite": "runs, equal to eager; leaves as a composite that a backend may replace",
    "lowered": "runs, equal to eager; leaves as plain operations",
    "differs": "lowers, and does not run or is not equal to eager",
    "missing": "does not lower",
}
RUNS = ("composite", "lowered")
TOGETHER = 8
"""The number of entries in one step of a run; an interrupted run loses at most one step."""


def recorded() -> dict[str, Any]:
    """Return the recorded results: commit, versions, operators, models, summary."""
    text = resources.files(__package__ or __name__).joinpath("results.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def own_path() -> Path:
    """Return the path of the recorded results in the package."""
    return Path(__file__).with_name("results.json")


def record(path: Path, progress: Callable[[str], None] = lambda stage: None) -> dict[str, Any]:
    """Run the whole inventory, write the results to ``path``, and return them.

    The finished part of an interrupted run is kept in a file beside ``path``, and reused
    if commit and versions are the same. Raises ``OSError`` if that file cannot be written.
    """
    origin = {"commit": commit(), "versions": installed_versions()}
    steps = list(_steps())
    with Journal(path, origin) as journal:
        done = {(one["kind"], one["row"]["family"], one["row"]["name"]): one["row"] for one in journal.lines}
        for place, (kind, entries) in enumerate(steps):
            if all((kind, entry.family, entry.name) in done for entry in entries):
                continue
            names = ", ".join(entry.name for entry in entries)
            progress(f"{place + 1} of {len(steps)}: {kind} of {entries[0].family}: {names}")
            for row in run(kind, entries):
                done[kind, row["family"], row["name"]] = row
                journal.add({"kind": kind, "row": row})
    found = {
        **origin,
        **{
            kind: [done[kind, entry.family, entry.name] for entry in listed]
            for kind, listed in (("operators", operators()), ("models", models()))
        },
    }
    found["summary"] = summary(found)
    journal.finish(found)
    return found


def run(kind: str, entries: Sequence[Entry]) -> list[Row]:
    """Run some ``operators`` or ``models`` now, and return their rows."""
    from . import model_runs, operator_rows

    return (operator_rows if kind == "operators" else model_runs).rows(entries)


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Count the operators and the models: in total, by status, that run, and by the result of gradients.

    For models, also count those that are one program for any batch size.
    """
    return {
        kind: {
            "total": len(found[kind]),
            "runs": sum(row["status"] in RUNS for row in found[kind]),
            **Counter(row["status"] for row in found[kind]),
            "backward": dict(Counter(row["backward"] for row in found[kind])),
            **({"any batch": sum(bool(row["batch"]) for row in found[kind])} if kind == "models" else {}),
        }
        for kind in ("operators", "models")
    }


def commit() -> str:
    """Return the commit of the sources, with ``-dirty`` if files differ from it; empty outside of git."""
    folder = Path(__file__).parent
    told = []
    for command in ("rev-parse HEAD", "status --porcelain --untracked-files=no"):
        try:
            done = subprocess.run(
                ["git", "-C", folder, *command.split()], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return ""
        told.append(done.stdout.strip())
    head, changes = told
    return head + ("-dirty" if changes else "")


def _steps() -> Iterator[tuple[str, list[Entry]]]:
    """Yield the kind and up to :data:`TOGETHER` entries of one family for each step of a run."""
    for kind, listed in (("operators", operators()), ("models", models())):
        for family in dict.fromkeys(entry.family for entry in listed):
            entries = [entry for entry in listed if entry.family == family]
            for start in range(0, len(entries), TOGETHER):
                yield kind, entries[start : start + TOGETHER]
