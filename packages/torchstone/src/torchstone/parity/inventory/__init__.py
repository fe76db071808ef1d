"""The inventory: two tables of the operators and the models that Torchstone must run.

``operators.csv`` and ``models.csv`` are part of the package. Not here: the models
themselves (:mod:`..zoo`), and the results of running them (:mod:`.results`).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Entry:
    """One line of a table."""

    family: str
    name: str
    note: str = ""


def operators() -> list[Entry]:
    """Return the 280 operator names, in 23 families."""
    return _read("operators.csv")


def models() -> list[Entry]:
    """Return the 162 models, in 10 families; ``note`` is what each one shows."""
    return _read("models.csv")


def _read(name: str) -> list[Entry]:
    text = resources.files(__package__ or __name__).joinpath(name).read_text("utf-8")
    return [
        Entry(row["family"], row["name"], row.get("what_it_shows") or "")
        for row in csv.DictReader(text.splitlines())
    ]
