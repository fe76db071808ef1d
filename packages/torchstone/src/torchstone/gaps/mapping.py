"""Which of our modules answers for which of PyTorch's: the table ``data/mapping.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Relation:
    """``ours``, a module here, answers for ``torch`` (a dotted prefix) when ``provider`` is asked."""

    provider: str
    torch: str
    ours: str


class ModuleTable:
    """The relations; the longest prefix wins."""

    def __init__(self, relations: Iterable[Relation]) -> None:
        self.relations = tuple(sorted(relations, key=lambda one: (-len(one.torch), one.torch, one.provider)))

    def ours(self, provider: str, api: str) -> str:
        """Our module for ``api``; empty where the table has none."""
        word = provider.partition(":")[0]
        for one in self.relations:
            if one.provider == word and (api + ".").startswith(one.torch + "."):
                return one.ours
        return ""


def load_mapping() -> ModuleTable:
    """The table that is shipped."""
    table = tomllib.loads(files(__package__).joinpath("data", "mapping.toml").read_text("utf-8"))
    return ModuleTable(
        Relation(one["provider"], torch, one["ours"]) for one in table["module"] for torch in one["torch"]
    )
