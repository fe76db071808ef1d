"""Run the models of the inventory: artifacts in a fresh process, gradients, batch sizes; return rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from optest.core.comparison import Comparison

from ..batches import NoBatch, at_every_size
from ..examples import check_backward, check_forward, check_fresh
from ..zoo import INVENTORY, Example, ZooModel
from . import Entry
from .operator_runs import composites_in, in_eager, in_halves, quiet

PADDED = "sizes that depend on values are padded to what torchstone.bounds declares"
ONE_BATCH = "one batch size"
ELSEWHERE = "PyTorch has it on accelerators only: compared with its dense form"


def rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Run the models and return a row for each."""
    chosen = [INVENTORY[entry.name] for entry in entries]
    composites: dict[str, set[str]] = {}
    compared: dict[str, list[Comparison]] = {}

    def inspect(model: ZooModel, path: Path) -> None:
        composites[model.name] = composites_in(path)

    with quiet():
        alone = in_halves(chosen, lambda some: compared.update(check_fresh(some, inspect)))
        failed = {model.name: error for model, error in alone}
        for name, found in compared.items():
            wrong = [each.summary() for each in found if not each.passed]
            if wrong or not found:
                failed[name] = "; ".join(wrong) or "it has no results"
        return [_row(model, composites.get(model.name), failed.get(model.name, "")) for model in chosen]


def _row(model: ZooModel, composites: set[str] | None, error: str) -> dict[str, Any]:
    example = model.make()
    status = "composite" if composites else "lowered"
    if error:
        status = "missing" if composites is None else "differs"
    gradient, complaint = _gradients(model, example)
    sizes, why_one = _batches(model)
    return {
        "family": model.family,
        "name": model.name,
        "status": status,
        "composites": sorted(composites or ()),
        "backward": gradient,
        "batch": sizes,
        "reason": "; ".join([*_known(example), *filter(None, (error, complaint, why_one))]),
    }


def _gradients(model: ZooModel, example: Example) -> tuple[str, str]:
    """Return ``equal``, ``none`` or ``differs``, and the complaint."""
    if not example.trains:
        return "none", ""
    wrong: list[str] = []

    def run(models: Sequence[ZooModel]) -> None:
        wrong.extend(each.summary() for each in check_backward(models[0].make()) if not each.passed)

    wrong += [error for _, error in in_halves([model], run)]
    return ("differs", f"gradients: {wrong[0]}") if wrong else ("equal", "")


def _batches(model: ZooModel) -> tuple[list[int], str]:
    """Return the batch sizes at which one program is equal to eager, or none and the reason."""
    wrong: list[str] = []
    try:
        example, sizes = at_every_size(model.make())
    except NoBatch as error:
        return [], f"{ONE_BATCH}: {error}"

    def run(_: Sequence[ZooModel]) -> None:
        wrong.extend(each.summary() for each in check_forward(example) if not each.passed)

    wrong += [error for _, error in in_halves([model], run)]
    return ([], f"{ONE_BATCH}: {wrong[0]}") if wrong else (sorted(sizes), "")


def _known(example: Example) -> list[str]:
    """Return what a user must know about the example."""
    found = [PADDED] if example.bounds is not None else []
    found += [ELSEWHERE] if example.reference is not None else []
    if example.in_eager:
        found.append(in_eager(example.in_eager))
    return found
