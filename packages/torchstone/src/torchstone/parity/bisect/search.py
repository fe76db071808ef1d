"""The search for the first value that departs: forward, then backward, then the optimizer.

The graphs are those of :mod:`.roads`, the verdicts those of :mod:`.arbiter` and :mod:`.repeats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch.fx import Node

from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance

from ...compiler.provenance import Phase, origin_of
from ...config import config
from ...errors import ModelError, TorchstoneError
from ...runtime import ENGINES, get_engine
from ..model import Model
from ..subject import Subject
from .arbiter import Arbiter, Judge, Kind, Verdict
from .repeats import Difference, FreshRun, Recorder, recorded, repeated
from .roads import (
    Loss,
    Results,
    Road,
    compiled_roads,
    eager_step,
    has_parameters,
    optimizer_of,
    results_of,
    step_road,
)
from .values import Piece, called_by, is_drawn

Tensor = torch.Tensor


@dataclass(frozen=True)
class Finding:
    """The first value that departs, where it is computed, and what it comes from.

    ``value`` is the node's name in its graph, or the name of a result. ``engines`` says what each engine
    made of it. ``piece`` shows it by itself, if anything does.
    """

    kind: Kind
    phase: Phase
    operator: str
    value: str
    line: str | None
    module: str | None
    road: str
    reason: str
    comparison: Comparison | None = None
    engines: Mapping[str, str] = field(default_factory=dict)
    piece: Piece | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "phase": self.phase,
            "operator": self.operator,
            "value": self.value,
            "line": self.line,
            "module": self.module,
            "road": self.road,
            "reason": self.reason,
            "engines": dict(self.engines),
            "comparison": None if self.comparison is None else self.comparison.to_dict(),
        }


@dataclass
class Report:
    """What a search found; ``finding`` is None where nothing departs."""

    model: str
    engine: str
    finding: Finding | None = None
    values: int = 0
    """How many values were compared."""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "engine": self.engine,
            "departs": self.finding is not None,
            "finding": None if self.finding is None else self.finding.to_dict(),
            "values": self.values,
            "notes": list(self.notes),
        }


def bisect(
    model: Model,
    *,
    optimizer: str | None = "AdamW",
    seed: int = 0,
    tolerance: Tolerance | None = None,
    fresh_process: bool = True,
    progress: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Find the first value of one training step of ``model`` that departs from eager PyTorch's.

    The step is a forward and a backward pass through ``torch.compile``, and an update by ``optimizer`` (a
    class of ``torch.optim``; None for no update) through ``compile_step``. Each run starts from ``seed``.
    ``fresh_process``: repeat the eager run in another process too, where ``model.name`` must lead to the
    model. Resets Dynamo; the model itself is left as it was. Raises :class:`ModelError` where eager PyTorch
    cannot run the model, and what Torchstone raises where it cannot compile it.
    """
    get_engine()
    search = _Search(model, optimizer, seed, Judge(tolerance), progress)
    search.fresh_process = fresh_process
    with torch.random.fork_rng(devices=[]):
        search.run()
    return search.report


Ran = TypeVar("Ran")


class _Search:
    """One search; stops at its first finding that is not rounding."""

    def __init__(
        self,
        model: Model,
        optimizer: str | None,
        seed: int,
        judge: Judge,
        progress: Callable[[str], None],
    ) -> None:
        self.given = Subject(model.model, model.args, model.kwargs)
        self.optimizer, self.seed, self.judge, self.progress = optimizer, seed, judge, progress
        self.report = Report(model.name, config.engine)
        self.rounding: Finding | None = None
        self.fresh_process = True

    def run(self) -> None:
        self.progress("running the model in eager PyTorch")
        step = eager_step(self.optimizer)
        first, expected = self._eager(lambda: recorded(step, self._fresh())), self._eager(self._plain)
        difference = repeated(step, self._fresh(), first)
        if difference is not None:
            self.report.finding = _unrepeated(first, difference)
            return
        if not self.fresh_process:
            self._compare(expected)
            return
        fresh = FreshRun(self.report.model, self._fresh(), first, self.optimizer, self.seed)
        try:
            self._compare(expected)
            self.progress("waiting for the same run in a fresh process")
            self._told(first, fresh.difference())
        finally:
            fresh.close()

    def _told(self, first: Recorder, found: Difference | str | None) -> None:
        """Add what the run in a fresh process shows; a wrong operator stays the first thing to say."""
        if isinstance(found, str):
            self.report.notes.append(f"the model was not repeated in a fresh process: {found}")
        elif found is not None:
            finding = _unrepeated(first, found)
            if self.report.finding in (None, self.rounding):
                self.report.finding = finding
            else:
                self.report.notes.append(f"the model does not repeat itself either: {finding.reason}")

    def _compare(self, expected: Results) -> None:
        self.progress("running the model through torch.compile")
        roads, found = compiled_roads(self._fresh())
        self.report.finding = self._walked(roads) or self._results(roads, found, expected)
        if self.report.finding is None and expected.differentiable and self._updates:
            self.progress("tracing the whole step")
            subject = self._fresh()
            road = step_road(subject, self._optimizer(subject), Loss(expected.differentiable))
            self.report.finding = self._walked([road])
        self.report.finding = self.report.finding or self.rounding

    def _fresh(self) -> Subject:
        """An independent copy in training mode, and the generator as every run finds it."""
        torch.manual_seed(self.seed)
        return self.given.copy(training=True)

    @property
    def _updates(self) -> bool:
        return self.optimizer is not None and has_parameters(self.given)

    def _plain(self) -> Results:
        return results_of(self._fresh(), compiled=False)

    def _optimizer(self, subject: Subject) -> torch.optim.Optimizer:
        assert self.optimizer is not None
        return optimizer_of(self.optimizer, subject.model.parameters())  # type: ignore[attr-defined]

    def _eager(self, run: Callable[[], Ran]) -> Ran:
        try:
            return run()
        except TorchstoneError:
            raise
        except Exception as error:
            raise ModelError(
                f"eager PyTorch cannot run the model: {type(error).__name__}: {error}",
                hint="nothing can be compared before it does: check the example inputs",
            ) from error

    def _walked(self, roads: list[Road]) -> Finding | None:
        """The first wrong value on ``roads``; notes the first that rounding explains."""
        known: dict[str, tuple[Tensor, Tensor | None]] = {}
        for road in roads:
            self.progress(f"comparing every value of {road.name}")
            piece = road.piece
            values = {**piece.given, **piece.on_engine()}
            self.report.values += len(piece.nodes)
            arbiter = Arbiter(piece, values, config.engine, self.judge)
            for node, comparison in arbiter.wrong():
                self.progress(f"asking the other engines about {node.name}")
                return self._finding(road, node, arbiter.verdict(node, comparison))
            self._accumulated(road, values, known)
        return None

    def _accumulated(
        self, road: Road, values: Mapping[Node, Any], known: dict[str, tuple[Tensor, Tensor | None]]
    ) -> None:
        """Note the first value that departs where every operator is right by itself.

        ``known`` are eager's and float64's values of what one graph saves for the next.
        """
        if self.rounding is not None:
            return
        piece = road.piece
        drawn = {node: values[node] for node in piece.nodes if is_drawn(node)}
        before = {node: known[node.name] for node in piece.placeholders if node.name in known}
        eager = piece.in_eager(drawn, {node: one for node, (one, _) in before.items()})
        wide = {node: other for node, (_, other) in before.items() if other is not None}
        exact = piece.in_float64(drawn, wide)
        for node in piece.nodes:
            expected = eager[node]
            if not isinstance(expected, Tensor):
                continue
            known[node.name] = expected, exact[node]
            comparison = self.judge.plain(values[node], expected)
            if not comparison.passed and self.rounding is None:
                judged = self.judge.operator(values[node], expected, exact[node], list)
                verdict = Verdict(
                    Kind.ROUNDING,
                    "every operator before it, and this one, is right by itself: the differences of their "
                    "roundings add up to this",
                    judged or comparison,
                    Arbiter(piece, dict(values), config.engine, self.judge).accumulating(node),
                    {},
                )
                self.rounding = self._finding(road, node, verdict)

    def _finding(self, road: Road, node: Node, verdict: Verdict) -> Finding:
        caller, _ = called_by(node)
        origin = origin_of(caller, road.phase)
        return Finding(
            verdict.kind,
            origin.phase,
            str(caller.target),
            node.name,
            origin.line,
            origin.module,
            road.name,
            verdict.reason,
            verdict.comparison,
            verdict.engines,
            verdict.piece,
        )

    def _results(self, roads: list[Road], found: Results, expected: Results) -> Finding | None:
        """What departs in the results though every operator is right: what is around the operators."""
        if self.rounding is not None:
            return None
        if any(is_drawn(node) for road in roads for node in road.piece.nodes):
            self.report.notes.append(
                "the model draws random numbers, which are not eager's: its operators were compared on the "
                "numbers that Torchstone drew"
            )
            return None
        for name, one in expected.values.items():
            other = found.values.get(name)
            if other is None:
                continue
            self.report.values += 1
            comparison = self.judge.plain(other, one)
            if comparison.passed:
                continue
            said = {config.engine: "wrong", **self._others(name, one)}
            kind = Kind.ENGINE if "right" in said.values() else Kind.LOWERING
            reason = "every operator of the graphs is right by itself, and this result is not: " + (
                "another engine runs the same programs right"
                if kind is Kind.ENGINE
                else "a decomposition, a compiler pass or the return of results changes it"
            )
            phase: Phase = "backward" if name.startswith("gradient") else "forward"
            return Finding(kind, phase, "", name, None, None, "torch.compile", reason, comparison, said)
        return None

    def _others(self, name: str, expected: Tensor) -> dict[str, str]:
        """What the other engines make of one result."""
        from ...torch_internals import dynamo

        said = {}
        for engine in ENGINES:
            if engine == config.engine:
                continue
            dynamo.reset()
            try:
                values = results_of(self._fresh(), compiled=True, engine=engine).values
                said[engine] = "right" if self.judge.plain(values[name], expected).passed else "wrong"
            except TorchstoneError as error:
                said[engine] = f"cannot run it: {error.message.partition(chr(10))[0]}"
        dynamo.reset()
        return said


def _unrepeated(first: Recorder, difference: Difference) -> Finding:
    """The model does something else each time, before any compiler sees it."""
    event = first.events[difference.place]
    comparison = None if difference.values is None else Judge().plain(*reversed(difference.values))
    return Finding(
        Kind.NONDETERMINISM,
        event.origin.phase,
        event.operator,
        f"call {difference.place + 1}",
        event.origin.line,
        event.origin.module,
        "eager PyTorch",
        f"two runs of eager PyTorch differ: {difference.what}",
        comparison,
    )
