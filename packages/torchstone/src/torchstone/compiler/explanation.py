"""Explains which operators of a model compile and which do not, as text or as data."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import TorchstoneError, UnsupportedNode, UnsupportedOperators
from ..lowering.groups import ranks_together
from .capture import capture
from .passes import survey_operators
from .pipeline import Pass, Pipeline, Unit
from .program import CAPTURED, NORMALIZING, Export, decompose, export_pipeline


@dataclass(frozen=True)
class Step:
    """A pass that ran, and the graph after it; ``graph`` is None if the pass did not change the graph."""

    name: str
    doc: str
    needs: tuple[str, ...]
    guarantees: tuple[str, ...]
    seconds: float
    graph: str | None

    def __str__(self) -> str:
        contract = [
            f"  {word}: {', '.join(names)}"
            for word, names in (("needs", self.needs), ("guarantees", self.guarantees))
            if names
        ]
        graph = "  the graph stays as it is" if self.graph is None else self.graph.strip()
        return "\n".join([f"{self.name} ({self.seconds * 1e3:.1f} ms): {self.doc}", *contract, graph])


@dataclass
class Explanation:
    """An explanation of what compiles in a model.

    ``native`` counts the calls of each overload that lowers; ``unsupported`` lists the operators that do not.
    ``error`` is set if the model could not even be captured. ``steps`` has the passes that ran, if
    :func:`explain` was called with ``trace``.
    """

    model: str
    native: Counter[str] = field(default_factory=Counter)
    unsupported: list[UnsupportedNode] = field(default_factory=list)
    error: str | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def compiles(self) -> bool:
        return self.error is None and not self.unsupported

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.steps), "\n".join(self._verdict())])

    def _verdict(self) -> list[str]:
        if self.error is not None:
            return [f"{self.model} cannot be captured:", self.error]
        calls = sum(self.native.values())
        lines = [f"{self.model}: {len(self.native)} operators in {calls} calls lower to StableHLO"]
        lines += [f"  {name} ({count}×)" for name, count in self.native.most_common()]
        if not self.unsupported:
            return [*lines, "everything compiles"]
        lines.append(f"{len(self.unsupported)} operators do not:")
        return [*lines, *(node.describe() for node in self.unsupported)]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as data that can be written as JSON."""
        return {
            "model": self.model,
            "compiles": self.compiles,
            "native": dict(self.native.most_common()),
            "unsupported": [
                {"overload": n.overload, "count": n.count, "reason": n.reason, "locations": list(n.locations)}
                for n in self.unsupported
            ],
            "error": self.error,
            "passes": [asdict(step) for step in self.steps],
        }


def explain(
    model: torch.nn.Module | Callable[..., Any] | ExportedProgram,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    passes: Sequence[Pass[Unit]] = (),
    trace: bool = False,
) -> Explanation:
    """Return which operators of ``model`` lower after decomposition, and which do not.

    With ``trace``, the model is lowered, and the explanation has the graph after each pass.
    """
    name = getattr(model, "__qualname__", type(model).__name__)
    pipeline = export_pipeline(passes) if trace or passes else _SURVEYING
    watch = _Watch(trace)
    export = None
    try:
        started = time.perf_counter()
        export = Export(capture(model, args, kwargs, dynamic_shapes))
        watch.captured(export, time.perf_counter() - started)
        with ranks_together():
            pipeline.run(export, watch)
    except UnsupportedOperators:
        pass  # the survey lists them
    except TorchstoneError as error:
        if export is not None and decompose.name in export.seconds:
            raise
        return Explanation(name, error=str(error), steps=watch.steps)
    assert export is not None
    missing = {node.overload for node in export.survey.unsupported}
    native = Counter({one: count for one, count in export.survey.native.items() if one not in missing})
    return Explanation(name, native, export.survey.unsupported, steps=watch.steps)


_SURVEYING: Pipeline[Export] = Pipeline([*NORMALIZING, survey_operators], given=CAPTURED)


class _Watch:
    """An observer of a pipeline that keeps a :class:`Step` for each pass, if ``trace``."""

    def __init__(self, trace: bool) -> None:
        self._trace = trace
        self.steps: list[Step] = []
        self._last = ""

    def captured(self, export: Export, seconds: float) -> None:
        doc = "Trace the model to a graph of ATen overloads with torch.export."
        self._add(export, "capture", doc, (), CAPTURED, seconds)

    def __call__(self, one: Pass[Export], export: Export) -> None:
        seconds = export.seconds[one.name]
        self._add(export, one.name, one.doc, sorted(one.needs), sorted(one.guarantees), seconds)

    def _add(
        self,
        export: Export,
        name: str,
        doc: str,
        needs: Sequence[str],
        guarantees: Sequence[str],
        seconds: float,
    ) -> None:
        if self._trace:
            text = _text(export)
            graph = None if text == self._last else text
            self.steps.append(Step(name, doc, tuple(needs), tuple(guarantees), seconds, graph))
            self._last = text


def _text(unit: Unit) -> str:
    """Return the unit's StableHLO if it has any, else its graph as Python with shapes and source lines."""
    if unit.stablehlo is not None:
        return unit.stablehlo.text()
    return str(unit.module.print_readable(print_output=False))
