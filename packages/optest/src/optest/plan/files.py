"""Reads plan files with their includes, checks them, and reduces them to entries.

Not here: what an entry expands to (``entries``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.tolerance import ToleranceTable
from ..driver_settings import merge_config
from ..files import real_path
from .document import Document, read_document
from .entries import Entry, Place
from .schema import check_plan


@dataclass
class Plan:
    """A plan with all its includes; ``options`` are those of the file, with paths seen from its folder."""

    file: Path | None = None
    entries: list[Entry] = field(default_factory=list)
    backend: str | None = None
    chip: str | None = None
    seed: int | None = None
    suite: str | None = None
    backend_config: dict[str, Any] = field(default_factory=dict)
    tolerances: ToleranceTable = field(default_factory=ToleranceTable)
    options: dict[str, Any] = field(default_factory=dict)


def read_plan(file: Path, variables: Mapping[str, str] | None = None) -> Plan:
    """Read ``file`` and its includes. Raises :class:`PlanError`."""
    plan = Plan(file)
    _read_into(plan, file, variables, (), set())
    return plan


def _read_into(
    plan: Plan,
    file: Path,
    variables: Mapping[str, str] | None,
    including: tuple[Path, ...],
    done: set[Path],
) -> None:
    document = read_document(file, variables)
    check_plan(document)
    data = document.data
    including = (*including, real_path(file))
    includes = data.get("include", [])
    for index, name in enumerate([includes] if isinstance(includes, str) else includes):
        keys = ("include",) if isinstance(includes, str) else ("include", index)
        target = file.parent / name
        if real_path(target) in including:
            ring = " → ".join(str(one.name) for one in (*including, target))
            raise document.error(keys, f"the plans include each other: {ring}", found=name)
        if not target.is_file():
            raise document.error(keys, "there is no such file", found=str(target), allowed="a plan's path")
        if real_path(target) not in done:
            done.add(real_path(target))
            _read_into(plan, target, variables, including, done)
    _settings(plan, document)
    defaults = data.get("defaults", {})
    for index, case in enumerate(data.get("cases", [])):
        fields = {**defaults, **{key: value for key, value in case.items() if key != "op"}}
        layers = (data.get("backend_config", {}), defaults.get("backend_config", {}))
        merged = merge_config(*layers, case.get("backend_config", {}))
        fields["backend_config"] = _located(merged, file.parent)
        place = Place(document, ("cases", index))
        ops = [case["op"]] if isinstance(case["op"], str) else case["op"]
        plan.entries += [Entry(op, fields, place) for op in ops]


def _settings(plan: Plan, document: Document) -> None:
    data = document.data
    for name in ("backend", "chip", "seed", "suite"):
        if name in data:
            setattr(plan, name, data[name])
    if "backend" in data and "chip" not in data:
        plan.chip = None
    own = _located(data.get("backend_config", {}), document.file.parent)
    plan.backend_config = merge_config(plan.backend_config, own)
    options = dict(data.get("options", {}))
    if "expectations" in options:
        options["expectations"] = document.file.parent / options["expectations"]
    plan.options |= options
    if "tolerances" in data:
        try:
            table = ToleranceTable.from_dict(data["tolerances"])
        except ValueError as error:
            raise document.error(("tolerances",), str(error)) from None
        plan.tolerances = _merged(plan.tolerances, table)


def _located(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return ``config`` with every driver's ``workdir`` resolved from the plan's folder."""
    return {
        driver: {**settings, "workdir": str(folder / settings["workdir"])}
        if isinstance(settings.get("workdir"), str)
        else settings
        for driver, settings in config.items()
    }


def _merged(old: ToleranceTable, new: ToleranceTable) -> ToleranceTable:
    """Merge two tables section by section; names in ``new`` override those in ``old``."""
    before, after = old.to_dict(), new.to_dict()
    return ToleranceTable.from_dict({name: {**before[name], **after[name]} for name in before})
