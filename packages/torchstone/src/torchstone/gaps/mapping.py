"""The table ``data/mapping.toml``, which relates modules of PyTorch to the modules of this project."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Relation:
    """One relation: for ``provider``, the module ``ours`` covers the names below ``torch``, a prefix."""

    provider: str
    torch: str
    ours: str


class ModuleTable:
    """All relations; the longest matching prefix wins."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        self.relations = tuple(sorted(relations, key=lambda one: (-len(one.torch), one.torch, one.provider)))

    def ours(self, provider: str, api: str) -> str:
        """Return this project's module for ``api``; empty if the table has none."""
        word = provider.partition(":")[0]
        for one in self.relations:
            if one.provider == word and (api + ".").startswith(one.torch + "."):
                return one.ours
        return ""


def load_mapping() -> ModuleTable:
    """Load the table that is shipped with this package."""
    table = tomllib.loads(files(__package__).joinpath("data", "mapping.toml").read_text("utf-8"))
    return ModuleTable(
        Relation(one["provider"], torch, one["ours"]) for one in table["module"] for torch in one["torch"]
    )
