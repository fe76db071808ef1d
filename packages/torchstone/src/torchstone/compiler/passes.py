"""The passes that an export, ``torch.compile``, parity and evidence share, and their pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .. import dtypes, hlo
from ..errors import UnsupportedOperators
from .argument_checks import check_arguments
from .checks import add_checks
from .graphs import settle_inplace_views, shape_of
from .lower import lower_graph
from .pipeline import Pass, Pipeline, Unit, compiler_pass
from .support import survey


@compiler_pass("check-arguments", needs=["metadata"], guarantees=["valid-arguments"])
def check_call_arguments(unit: Unit) -> None:
    """Raise CaptureError for the first call whose arguments eager PyTorch refuses."""
    check_arguments(unit.module)


@compiler_pass("settle-inplace-views", guarantees=["functional"])
def settle_views(unit: Unit) -> None:
    """Turn squeeze_ and other in-place views into views; nothing else in a traced graph writes."""
    settle_inplace_views(unit.module)


@compiler_pass("survey", needs=["functional", "metadata"], guarantees=["surveyed"])
def survey_operators(unit: Unit) -> None:
    """Find out what lowers, what does not and why, and whether random numbers are drawn."""
    unit.survey = survey(unit.module)


@compiler_pass("require-lowerings", needs=["surveyed"], guarantees=["lowerable"])
def require_lowerings(unit: Unit) -> None:
    """Raise UnsupportedOperators with every call that no program can contain."""
    if unit.survey.eager:
        raise UnsupportedOperators([*unit.survey.unsupported, *unit.survey.preferred])


@compiler_pass("add-checks", needs=["lowerable"], guarantees=["checks"])
def add_results_of_checks(unit: Unit) -> None:
    """Add one result for each check of an index or a value, if the settings ask for these."""
    if unit.check_indices or unit.check_values:
        unit.module, checks = add_checks(unit.module, indices=unit.check_indices, values=unit.check_values)
        if unit.results is not None:
            unit.results += [f"{check.kind}{i}" for i, check in enumerate(checks, len(unit.checks))]
        unit.checks += checks


@compiler_pass("lower", needs=["lowerable", "checks"], guarantees=["stablehlo"])
def lower(unit: Unit) -> None:
    """Build the StableHLO of each call, and verify the module."""
    seed = unit.survey.seeded
    placed = {} if unit.placement is None else unit.placement.arguments
    unit.arguments = [
        hlo.Argument(
            shape_of(node.meta["val"]),
            dtypes.from_torch(node.meta["val"].dtype),
            unit.labels.get(node.name, node.name),
            placed.get(node.name),
            unit.next_values.get(node.name),
        )
        for node in unit.module.graph.find_nodes(op="placeholder")
        if isinstance(node.meta.get("val"), torch.Tensor) and node.name not in unit.baked
    ]
    if seed:
        unit.arguments.append(hlo.Argument((2,), dtypes.UINT64, "seed", placed.get("seed")))
    unit.stablehlo = lower_graph(
        unit.module,
        unit.arguments,
        name=unit.name,
        result_names=unit.results,
        baked=unit.baked,
        seed=seed,
        placement=unit.placement,
    )


def lowering_passes(between: Sequence[Pass[Any]] = ()) -> list[Pass[Any]]:
    """Return the passes from a functional graph to StableHLO, ``between`` after ``require-lowerings``."""
    return [survey_operators, require_lowerings, *between, add_results_of_checks, lower]


def lowered(unit: Unit, *before: Pass[Unit]) -> hlo.Module:
    """Run ``before`` and the shared passes on ``unit``, a graph with metadata, and return its StableHLO."""
    Pipeline([*before, *lowering_passes()], given=["metadata", "functional"]).run(unit)
    return unit.built()
