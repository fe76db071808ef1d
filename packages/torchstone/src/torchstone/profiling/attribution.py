"""Attribute the time, FLOPs and bytes of the engine's kernels to operators and modules.

The engine fuses operators. The time and bytes of a fusion are divided among its operators in proportion to
the operations and elements that each has in it. FLOPs are counted for each operator directly.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .optimized import Kernel, Part, kernels
from .record import Record
from .roofline import Peaks

ENGINE = "(engine)"
"""The name shown for instructions that come from no operator, such as copies between layouts and loops."""


@dataclass(frozen=True)
class Origin:
    """The parts of an instruction's location: the path of a module, an operator, and its node."""

    module: str
    operator: str
    node: str

    @classmethod
    def of(cls, location: str) -> Origin:
        """Parse ``layers.0.fc/aten.addmm.default/addmm_1``; any other location is an operator's name."""
        parts = location.rsplit("/", 2)
        return cls(*parts) if len(parts) == 3 else cls("", location or ENGINE, "")


@dataclass
class Cost:
    """The time, FLOPs and bytes of one item (such as an operator) over all calls after ``settle``."""

    name: str
    calls: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def add(self, seconds: float, flops: float, bytes: float) -> None:
        self.seconds += seconds
        self.flops += flops
        self.bytes += bytes

    def to_dict(self, peaks: Peaks | None, whole: float) -> dict[str, Any]:
        """Return JSON-able data, with the place on the roofline; ``whole`` is the time of all calls."""
        found: dict[str, Any] = {
            "name": self.name,
            "calls": self.calls,
            "seconds": self.seconds,
            "share": self.seconds / whole if whole else 0.0,
            "flops": round(self.flops),
            "bytes": round(self.bytes),
            "flops_per_byte": self.flops / self.bytes if self.bytes else None,
        }
        if peaks is not None:
            least = peaks.least_seconds(self.flops, self.bytes)
            found["bound"] = peaks.bound(self.flops, self.bytes) if least else None
            found["of_limit"] = least / self.seconds if self.seconds else None
        return found


@dataclass
class Costs:
    """The tables of a profile.

    ``own`` has the costs of each module without the modules inside it. ``whole`` is the time of all calls in
    seconds, and ``outside`` the part of it in which no kernel ran.
    """

    nodes: dict[tuple[int, str], Cost]
    operators: list[Cost]
    modules: list[Cost]
    own: dict[str, Cost]
    kernels: list[Cost]
    programs: list[Cost]
    whole: float
    outside: float


def costs(profile: Record) -> Costs:
    """Return the time, FLOPs and bytes of the calls after :meth:`~.record.Record.settle`."""
    known = [kernels(program.text) for program in profile.programs]
    calls = {span.call: span for span in profile.calls()}
    runs = defaultdict(int)  # type: ignore[var-annotated]
    programs = [Cost(f"{number}: {one.name}") for number, one in enumerate(profile.programs)]
    for span in calls.values():
        assert span.program is not None
        runs[span.program] += 1
        programs[span.program].calls += 1
        programs[span.program].seconds += span.seconds
    nodes: dict[tuple[int, str], Cost] = {}
    kernel_costs: dict[tuple[int, str], Cost] = {}
    busy = 0.0
    for event in profile.events:
        call = calls.get(event.call)
        if call is None or call.program is None:
            continue
        kernel = known[call.program].get(event.name) or Kernel(event.name, "?", 0, (), nests=False)
        seconds = event.own_ns / 1e9
        busy += seconds
        one = kernel_costs.setdefault((call.program, kernel.name), Cost(f"{kernel.name} ({kernel.opcode})"))
        one.calls += 1
        one.add(seconds, kernel.flops, kernel.bytes)
        programs[call.program].add(0.0, kernel.flops, kernel.bytes)
        parts = kernel.parts or (Part("", 0, 1),)
        total = sum(part.weight for part in parts) or 1
        for part in parts:
            node = nodes.setdefault((call.program, part.origin), Cost(part.origin, runs[call.program]))
            share = part.weight / total
            node.add(seconds * share, part.flops, kernel.bytes * share)
    whole = sum(span.seconds for span in calls.values())
    own = _joined(nodes.values(), lambda origin: origin.module)
    return Costs(
        nodes,
        _sorted(_joined(nodes.values(), lambda origin: origin.operator)),
        _sorted(_inclusive(own)),
        own,
        _sorted(kernel_costs),
        programs,
        whole,
        max(whole - busy, 0.0),
    )


def _joined(nodes: Iterable[Cost], key: Callable[[Origin], str]) -> dict[str, Cost]:
    found: dict[str, Cost] = {}
    for node in nodes:
        name = key(Origin.of(node.name))
        one = found.setdefault(name, Cost(name))
        one.calls += node.calls
        one.add(node.seconds, node.flops, node.bytes)
    return found


def _inclusive(own: dict[str, Cost]) -> dict[str, Cost]:
    """Return each module's costs, including the modules inside it; the model itself has the empty path."""
    found: dict[str, Cost] = {}
    for path, cost in own.items():
        names = path.split(".") if path else []
        for depth in range(len(names) + 1):
            name = ".".join(names[:depth])
            one = found.setdefault(name, Cost(name))
            one.calls += cost.calls
            one.add(cost.seconds, cost.flops, cost.bytes)
    return found


def _sorted(found: dict[Any, Cost]) -> list[Cost]:
    return sorted(found.values(), key=lambda one: (-one.seconds, one.name))
