"""``RunOptions``: all options of a run, after flags and a plan file are merged.

Not here: how flags are declared (``cli.run``), what a plan file looks like
(``document``, ``schema``) and what an entry expands to (``entries``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.tolerance import ToleranceTable
from ..driver_settings import DRIVER_FIELDS, check_settings, merge_config
from ..errors import UsageError
from .entries import Entry, Flags
from .files import Plan, read_plan

SUITES = ("builtin",)


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """A report to write: its kind, and its path unless that is the default of the kind."""

    kind: str
    path: Path | None = None

    @classmethod
    def parse(cls, text: str) -> ReportRequest:
        """Parse ``KIND`` or ``KIND:PATH``."""
        kind, _, path = text.partition(":")
        if not kind:
            raise UsageError(f"--report {text!r} names no kind; write KIND or KIND:PATH, like json:out.json")
        return cls(kind, Path(path) if path else None)


@dataclass(frozen=True)
class RunOptions:
    """What to run, on which backend, how, and where the results go.

    ``entries`` are expanded to cases by ``loader.load``; ``shard`` is (i, n) with i
    from 1 to n. ``ledger`` is a path or URL, "none" for no ledger, None for the default.
    ``source`` says where the cases come from, for messages.
    """

    entries: tuple[Entry, ...] = ()
    source: str = ""
    plan: Path | None = None
    suite: str | None = None
    filters: tuple[str, ...] = ()
    shard: tuple[int, int] = (1, 1)
    backend: str | None = None
    chip: str | None = None
    backend_config: Mapping[str, Any] = field(default_factory=dict)
    tolerances: ToleranceTable = field(default_factory=ToleranceTable)
    seed: int = 0
    workers: int = 1
    executor: str = "process"
    timeout: float | None = None
    retries: int = 0
    fail_fast: bool = False
    resume: bool = False
    reports: tuple[ReportRequest, ...] = ()
    ledger: str | None = None
    expectations: Path | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing narrows the suite or plan, so that a gap that matches no case is stale."""
        return not self.filters and self.shard == (1, 1) and all(one.whole for one in self.entries)


def resolve(
    *,
    plan: Path | None = None,
    suite: str | None = None,
    flags: Flags | None = None,
    shard: str | None = None,
    reports: Sequence[str] = (),
    filters: Sequence[str] = (),
    **settings: Any,
) -> RunOptions:
    """Merge the command line with the plan file; the command line wins.

    ``settings`` are fields of :class:`RunOptions`; None means not given. Raises
    :class:`PlanError` and :class:`UsageError`.
    """
    flags, config = _driver_settings(flags or Flags())
    read = read_plan(plan) if plan else Plan()
    suite = suite or read.suite
    if suite is not None and suite not in SUITES:
        raise UsageError(f"unknown suite {suite!r}; there is {', '.join(SUITES)}")
    entries = tuple(one.with_config(config) for one in _entries(read, suite, flags))
    if not entries:
        raise UsageError(
            "nothing to run: no operator, plan or suite is named",
            "give --op OP, --plan FILE or --suite builtin; `optest list` shows the operators",
        )
    given = {name: value for name, value in settings.items() if value is not None}
    from_plan = {name: value for name, value in read.options.items() if name not in ("report", "filter")}
    for name in ("backend", "chip", "seed"):
        if (value := getattr(read, name)) is not None:
            from_plan[name] = value
    if given.get("backend") is not None and given["backend"] != from_plan.get("backend"):
        from_plan.pop("chip", None)  # the plan's chip belongs to the plan's backend
    options = RunOptions(
        entries=entries,
        source=_source(plan, suite, flags),
        plan=plan,
        suite=suite,
        filters=(*_listed(read.options.get("filter")), *filters),
        shard=parse_shard(shard) if shard else (1, 1),
        backend_config=merge_config(read.backend_config, config),
        tolerances=read.tolerances,
        reports=tuple(ReportRequest.parse(text) for text in reports or _listed(read.options.get("report"))),
    )
    merged = replace(options, **{**from_plan, **given})
    if merged.expectations is not None:
        merged = replace(merged, expectations=Path(merged.expectations))
    return merged


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``i/n`` with 1 ≤ i ≤ n."""
    match = re.fullmatch(r"(\d{1,18})/(\d{1,18})", text)
    shard = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= shard[0] <= shard[1]:
        raise UsageError(f"--shard is {text!r}; write i/n with 1 <= i <= n, like 2/4")
    return shard


def _entries(plan: Plan, suite: str | None, flags: Flags) -> tuple[Entry, ...]:
    """Return the entries of plan and suite, narrowed to ``--op``; without either, those for ``--op``."""
    entries = [entry.with_flags(flags) for entry in plan.entries]
    if suite is not None:
        entries += Entry.of_suite(flags)
    if not entries and plan.file is None:
        return tuple(Entry.of_flags(op, flags) for op in flags.ops)
    if flags.ops:
        kept = [entry for entry in entries if entry.op in flags.ops]
        missing = [op for op in flags.ops if op not in {entry.op for entry in kept}]
        if missing:
            from ..errors import UnknownName

            where = "the plan" if plan.file else f"the suite {suite}"
            raise UnknownName(f"operator of {where}", missing[0], dict.fromkeys(one.op for one in entries))
        entries = [replace(entry, whole=False) for entry in kept]
    return tuple(entries)


def _driver_settings(flags: Flags) -> tuple[Flags, dict[str, Any]]:
    """Split the attributes ``backend_config.DRIVER[.KEY]`` off the flags, and return them as settings."""
    config: dict[str, Any] = {}
    rest = {}
    for name, values in flags.attributes.items():
        head, _, path = name.partition(".")
        if head != "backend_config":
            rest[name] = values
            continue
        driver, dot, key = path.partition(".")
        settings = {key: values[-1]} if dot else values[-1]
        if not (driver and isinstance(settings, Mapping)):
            raise UsageError(
                f"--attr {name} names no setting of a driver",
                "write backend_config.DRIVER.KEY=value, or backend_config.DRIVER={key: value}",
            )
        config = merge_config(config, {driver: settings})
    for driver, settings in config.items():
        if driver in DRIVER_FIELDS:
            check_settings(driver, settings, DRIVER_FIELDS[driver])
    return replace(flags, attributes=rest), config


def _listed(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    return (value,) if isinstance(value, str) else tuple(value)


def _source(plan: Path | None, suite: str | None, flags: Flags) -> str:
    if plan is not None:
        return f"plan {plan}"
    return f"suite {suite}" if suite else f"--op {' '.join(flags.ops)}"
