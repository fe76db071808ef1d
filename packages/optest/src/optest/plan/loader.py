"""Turns run options into cases, one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..core.case import BackendTarget, TestCase
from ..driver_settings import merge_config
from ..errors import UsageError
from .entries import MOST_CASES
from .filters import Filter, nothing_matched
from .options import RunOptions


def load(options: RunOptions, target: BackendTarget | None = None) -> Iterator[TestCase]:
    """Yield the cases of a run in a fixed order, each id once.

    ``target`` is the selected driver; without it, the cases get the backend that was requested.
    Entries are checked when they are reached, so :class:`PlanError` and :class:`UsageError`
    are raised while iterating, also if no case at all is left. A shard may be empty.
    """
    target = target or BackendTarget(options.backend or "stub", None, options.chip)
    filters = [Filter.parse(text) for text in options.filters]
    index, shards = options.shard
    expanded = kept = False
    seen: dict[str, int] = {}
    count = planned = 0
    for entry in options.entries:
        config = merge_config(options.backend_config, entry.fields.get("backend_config", {}))
        entry = replace(entry, fields={**entry.fields, "backend_config": config})
        settings = repr(config)
        for case in entry.expand(target, options.seed, options.tolerances):
            expanded = True
            if planned == MOST_CASES:
                raise UsageError(f"{options.source} stands for more than {MOST_CASES:,} cases")
            planned += 1
            if False in {one.keeps(case) for one in filters}:  # every filter sees every case
                continue
            kept = True
            rest = hash((case.tolerance, settings))
            before = seen.setdefault(case.id, rest)
            if before != rest:
                raise UsageError(
                    f"the case {case.id} ({case.describe()}) is planned twice, with different tolerances "
                    "or backend settings",
                    "leave one out, or give them different seeds",
                )
            if len(seen) == count:
                continue
            count += 1
            if int(case.id, 16) % shards == index - 1:
                yield case
    if not expanded:
        raise UsageError(
            f"no case of {options.source} is left: no operator in it takes the dtypes, shapes and "
            "attributes given"
        )
    if not kept:
        raise nothing_matched(filters, options.source)
