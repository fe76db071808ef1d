"""The pages of ``docs/inventory``: one for each family of operators and models, from the recorded results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from markdown_tables import WRITTEN, code, table

from torchstone import dtypes
from torchstone.dtypes import DType
from torchstone.parity.inventory import Entry, models, operators, results

DtypeText = Callable[[Iterable[DType]], str]

OVERVIEW = """\
# The inventory

{operators} operator names and {models} models, each exported to an artifact, run in a fresh process
without PyTorch, and compared with eager PyTorch in every dtype that PyTorch's CPU kernels take;
gradients through `torch.compile` without fallback. `torchstone ops --inventory` prints the same,
`torchstone ops --inventory --run` does it again. No program has a custom call.

{any_batch} of the models are exported once more, with a dynamic batch: one program is equal to eager PyTorch
at every batch size listed. The others say why their batch is fixed.

Recorded at commit `{commit}` with {versions}.

What a status says:

{statuses}"""

FAMILY = """\
# {family}

Back to [the inventory](README.md), which says how this was found.
"""


def pages(dtype_text: DtypeText) -> dict[str, str]:
    """Return the text of each page, by its path in the repository."""
    found = results.recorded()
    rows: list[dict[str, Any]] = [*found["operators"], *found["models"]]
    families = sorted({row["family"] for row in rows})
    made = {
        f"docs/inventory/{family}.md": _family(
            family,
            [row for row in found["operators"] if row["family"] == family],
            [row for row in found["models"] if row["family"] == family],
            dtype_text,
        )
        for family in families
    }
    return {"docs/inventory/README.md": _overview(found, families), **made}


def _overview(found: Mapping[str, Any], families: Iterable[str]) -> str:
    def share(kind: str, family: str) -> str:
        rows = [row for row in found[kind] if row["family"] == family]
        return f"{sum(row['status'] in results.RUNS for row in rows)} of {len(rows)}" if rows else ""

    def equal(family: str) -> str:
        rows = [row for kind in ("operators", "models") for row in found[kind] if row["family"] == family]
        trained = [row for row in rows if row["backward"] != "none"]
        return f"{sum(row['backward'] == 'equal' for row in trained)} of {len(trained)}" if trained else ""

    introduction = OVERVIEW.format(
        operators=len(operators()),
        models=len(models()),
        any_batch=found["summary"]["models"]["any batch"],
        commit=found["commit"],
        versions=", ".join(f"{name} {version}" for name, version in found["versions"].items() if version),
        statuses="".join(f"- {name}: {text}\n" for name, text in results.STATUSES.items()),
    )
    listed = [
        (f"[{family}]({family}.md)", share("operators", family), share("models", family), equal(family))
        for family in families
    ]
    header = ("family", "operators that run", "models that run", "gradients equal to eager's")
    return "\n".join([WRITTEN, introduction, table(header, listed)])


def _family(
    family: str, of_operators: list[dict[str, Any]], of_models: list[dict[str, Any]], dtype_text: DtypeText
) -> str:
    parts = [WRITTEN, FAMILY.format(family=family)]
    if of_operators:
        header = ("operator", "PyTorch calls", "status", "backward", "dtypes", "reason")
        listed = [
            (
                f"`{row['name']}`",
                "<br>".join(f"`{call}`" for call in row["calls"]),
                _status(row),
                row["backward"],
                dtype_text(dtypes.by_name(name) for name in row["dtypes"]),
                row["reason"],
            )
            for row in of_operators
        ]
        parts += ["## Operators\n", table(header, listed)]
    if of_models:
        notes = {entry.name: entry.note for entry in _of(family)}
        columns = ("model", "what it shows", "status", "backward", "batch sizes", "reason")
        rows = [
            (
                f"`{row['name']}`",
                notes[row["name"]],
                _status(row),
                row["backward"],
                ", ".join(map(str, row["batch"])),
                row["reason"],
            )
            for row in of_models
        ]
        parts += ["## Models\n", table(columns, rows)]
    return "\n".join(parts)


def _of(family: str) -> list[Entry]:
    return [entry for entry in models() if entry.family == family]


def _status(row: Mapping[str, Any]) -> str:
    return f"{row['status']}: {code(row['composites'])}" if row["composites"] else str(row["status"])
