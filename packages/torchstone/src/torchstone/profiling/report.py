"""Report a profile as JSON-able data and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..runtime.counters import Copies, Stats
from .attribution import Cost, Origin, costs
from .record import Record, Span

MODEL = "(model)"
SAMPLES = 1000
"""The largest number of memory samples that are reported."""


@dataclass(frozen=True)
class Table:
    """One table to print."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def to_dict(profile: Record) -> dict[str, Any]:
    """Return everything in a profile as JSON-able data; times are in seconds."""
    found = costs(profile)

    def listed(these: Sequence[Cost]) -> list[dict[str, Any]]:
        return [one.to_dict(profile.peaks, found.whole) for one in these]

    modules = listed(found.modules)
    for one in modules:
        alone = found.own.get(one["name"])
        one["own_seconds"] = alone.seconds if alone else 0.0
    return {
        "seconds": found.whole,
        "outside_kernels": found.outside,
        "programs": [
            {**data, "memory": dict(program.memory)}
            for data, program in zip(listed(found.programs), profile.programs, strict=True)
        ],
        "operators": listed(found.operators),
        "modules": modules,
        "kernels": listed(found.kernels),
        "nodes": [
            {**asdict(Origin.of(one.name)), "program": program, **_figures(one, profile, found.whole)}
            for (program, _), one in found.nodes.items()
        ],
        "in_eager": _totals(profile.eager_calls()),
        "phases": phases(profile),
        "copies": {
            "in": _copies(profile.before.copies_in, profile.after.copies_in),
            "out": _copies(profile.before.copies_out, profile.after.copies_out),
        },
        "cache": _cache(profile.before, profile.after),
        "recompiles": [asdict(one) for one in profile.recompiles],
        "memory": _memory(profile),
        "peaks": None if profile.peaks is None else profile.peaks.to_dict(),
        "notes": list(profile.notes),
    }


def _figures(one: Cost, profile: Record, whole: float) -> dict[str, Any]:
    data = one.to_dict(profile.peaks, whole)
    del data["name"]  # the location, whose parts the caller lists as the fields of Origin
    return data


def phases(profile: Record) -> list[dict[str, Any]]:
    """Return the count and time of each compile phase, in the order in which they first began."""
    return _totals(span for span in profile.spans if span.kind == "compile")


def _totals(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """Return the count and time of spans by name, in the order in which the names first began."""
    found: dict[str, dict[str, Any]] = {}
    for span in sorted(spans, key=lambda one: one.start_ns):
        total = found.setdefault(span.name, {"name": span.name, "count": 0, "seconds": 0.0})
        total["count"] += 1
        total["seconds"] += span.seconds
    return list(found.values())


def _copies(before: Mapping[str, Copies], after: Mapping[str, Copies]) -> dict[str, dict[str, int]]:
    found = {}
    for reason, now in after.items():
        old = before.get(reason, Copies())
        if now.count > old.count:
            found[reason] = {"count": now.count - old.count, "bytes": now.bytes - old.bytes}
    return found


def _cache(before: Stats, after: Stats) -> dict[str, int]:
    names = ("compiles", "memory_hits", "disk_hits", "disk_stores")
    return {name: getattr(after, name) - getattr(before, name) for name in names}


def _memory(profile: Record) -> dict[str, Any]:
    samples = profile.memory
    step = max(1, -(-len(samples) // SAMPLES))
    return {
        "start_bytes": samples[0][1] if samples else None,
        "end_bytes": samples[-1][1] if samples else None,
        "peak_bytes": max((size for _, size in samples), default=None),
        "samples": [[(at - profile.start_ns) / 1e9, size] for at, size in samples[::step]],
    }


def tables(data: Mapping[str, Any], most: int = 15) -> list[Table]:
    """Return the tables to print, with the ``most`` slowest operators, modules and kernels.

    ``data`` comes from :func:`to_dict`.
    """
    roofline = data["peaks"] is not None
    made = [
        _cost_table("operators", "operator", data["operators"], most, roofline),
        _cost_table("modules, with what is inside them", "module", data["modules"], most, roofline),
        _cost_table("kernels", "kernel", data["kernels"], most, roofline),
        Table(
            "programs",
            ("program", "calls", "ms", "memory"),
            [
                (one["name"], str(one["calls"]), _ms(one["seconds"]), _size(sum(one["memory"].values())))
                for one in data["programs"]
                if one["calls"]
            ],
        ),
        _totals_table("functions that eager PyTorch runs", "function", "calls", data["in_eager"]),
        _totals_table("phases of compilation", "phase", "count", data["phases"]),
        Table(
            "recompilations",
            ("what", "reason", "where"),
            [(one["name"], one["reason"], one["place"]) for one in data["recompiles"]],
        ),
        Table(
            "copies",
            ("direction", "reason", "tensors", "bytes"),
            [
                (direction, reason, str(one["count"]), _size(one["bytes"]))
                for direction, reasons in data["copies"].items()
                for reason, one in reasons.items()
            ],
        ),
    ]
    return [table for table in made if table.rows]


def summary(data: Mapping[str, Any]) -> list[str]:
    """Return the lines to print below the tables: totals, cache, memory, peaks, notes."""
    cache, memory, peaks = data["cache"], data["memory"], data["peaks"]
    calls, outside = sum(one["calls"] for one in data["programs"]), _ms(data["outside_kernels"])
    stored = f"found in memory: {cache['memory_hits']}, on disk: {cache['disk_hits']}"
    lines = [
        f"{calls} calls of programs took {_ms(data['seconds'])} ms, {outside} ms of it outside kernels",
        *_eager_line(data["in_eager"]),
        f"programs compiled: {cache['compiles']}, {stored}",
    ]
    if memory["peak_bytes"] is not None:
        lines.append(
            f"resident memory: {_size(memory['start_bytes'])} at the start, "
            f"{_size(memory['peak_bytes'])} at its peak, {_size(memory['end_bytes'])} at the end"
        )
    if peaks is not None:
        lines.append(
            f"peaks measured here: {peaks['flops'] / 1e9:.1f} GFLOP/s, {peaks['bytes'] / 1e9:.1f} GB/s; "
            "'of limit' is what the roofline allows over what was taken"
        )
    return [*lines, *(f"note: {note}" for note in data["notes"])]


def _eager_line(totals: Sequence[Mapping[str, Any]]) -> list[str]:
    if not totals:
        return []
    calls, seconds = (sum(one[name] for one in totals) for name in ("count", "seconds"))
    took = f"{_ms(seconds)} ms"
    return [f"{calls} calls of functions ran in eager PyTorch, measured to be faster there: {took}"]


def text(profile: Record) -> str:
    """Return the tables and the summary as plain text."""
    data, parts = to_dict(profile), []
    for table in tables(data):
        lines = [table.columns, *table.rows]
        widths = [max(len(line[place]) for line in lines) for place in range(len(table.columns))]
        shown = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        parts.append("\n".join([table.title, *shown]))
    return "\n\n".join([*parts, "\n".join(summary(data))])


def _totals_table(title: str, what: str, counted: str, totals: Sequence[Mapping[str, Any]]) -> Table:
    rows = [(one["name"], str(one["count"]), _ms(one["seconds"])) for one in totals]
    return Table(title, (what, counted, "ms"), rows)


def _cost_table(title: str, what: str, costs_: Sequence[Mapping[str, Any]], most: int, placed: bool) -> Table:
    columns = (what, "calls", "ms", "share", "GFLOP", "bytes", "FLOP/byte")
    rows = [_cost_row(one, placed) for one in costs_[:most]]
    if len(costs_) > most:
        rest = sum(one["seconds"] for one in costs_[most:])
        rows.append((f"{len(costs_) - most} more", "", _ms(rest), *[""] * (6 if placed else 4)))
    return Table(title, (*columns, "bound", "of limit") if placed else columns, rows)


def _cost_row(one: Mapping[str, Any], placed: bool) -> tuple[str, ...]:
    intensity = one["flops_per_byte"]
    row = (
        one["name"] or MODEL,
        str(one["calls"]),
        _ms(one["seconds"]),
        f"{one['share']:.1%}",
        f"{one['flops'] / 1e9:.3f}",
        _size(one["bytes"]),
        "-" if intensity is None else f"{intensity:.2f}",
    )
    if not placed:
        return row
    limit = one["of_limit"]
    return (*row, one["bound"] or "-", "-" if limit is None else f"{limit:.0%}")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def _size(count: float) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"
