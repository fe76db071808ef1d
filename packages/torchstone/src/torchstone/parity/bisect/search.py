"""The search for the first value that departs: forward, then backward, then the optimizer.

The graphs come from :mod:`.roads`, the verdicts from :mod:`.arbiter` and :mod:`.repeats`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch.fx import Node

from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance

from ...compiler.provenance import Phase, origin_of
from ...config import config, override
from ...errors import CaptureError, ModelError, TorchstoneError, TrainingError, UnsupportedOperators
from ...runtime import ENGINES, get_engine
from ...torch_internals import dynamo
from ..model import Model
from ..subject import Subject
from .arbiter import Arbiter, Judge, Kind, Verdict, cannot_run
from .findings import Finding, Report, unrepeated
from .repeats import Difference, FreshRun, Recorder, recorded, repeated
from .roads import (
    Loss,
    Results,
    Road,
    compiled_roads,
    eager_step,
    has_parameters,
    optimizer_kind,
    optimizer_of,
    results_of,
    step_road,
    updated,
)
from .values import called_by, is_drawn, source_of

Tensor = torch.Tensor


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
    With ``fresh_process`` the eager run is repeated in another process too, which loads the model by
    ``model.name``. Resets Dynamo; does not change the model. Raises :class:`ModelError` if eager PyTorch
    cannot run the model, and Torchstone's own errors if it cannot compile the model.
    """
    get_engine()
    if optimizer is not None:
        optimizer_kind(optimizer)
    search = _Search(model, optimizer, seed, Judge(tolerance), fresh_process, progress)
    with torch.random.fork_rng(devices=[]):
        search.run()
    return search.report


Ran = TypeVar("Ran")
Run = Callable[[str], Results]
"""A function from an engine's name to the model's results on it."""


class _Search:
    """One search, which stops at its first finding that is not rounding."""

    def __init__(
        self,
        model: Model,
        optimizer: str | None,
        seed: int,
        judge: Judge,
        fresh_process: bool,
        progress: Callable[[str], None],
    ) -> None:
        self.given = Subject(model.model, model.args, model.kwargs)
        self.optimizer, self.seed, self.judge, self.progress = optimizer, seed, judge, progress
        self.report = Report(model.name, config.engine)
        self.rounding: Finding | None = None
        self.fresh_process = fresh_process

    def run(self) -> None:
        self.progress("running the model in eager PyTorch")
        step = eager_step(self.optimizer)
        first = self._eager(lambda: recorded(step, self._fresh()))
        difference = repeated(step, self._fresh(), first)
        if difference is not None:
            self.report.finding = unrepeated(first, difference)
            return
        expected = self._eager(self._plain)
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
        """Add the result of the run in a fresh process; a finding of a wrong operator stays the main one."""
        if isinstance(found, str):
            self._note(f"the model was not repeated in a fresh process: {found}")
        elif found is not None:
            finding = unrepeated(first, found)
            known = self.report.finding
            if known is None or known is self.rounding or not known.operator:
                self.report.finding = finding  # the order of sets may also explain a result without operator
            else:
                self._note(f"the model does not repeat itself either: {finding.reason}")

    def _compare(self, expected: Results) -> None:
        self.progress("running the model through torch.compile")
        roads, found = compiled_roads(self._fresh())
        self.report.finding = self._walked(roads) or self._results(roads, self._compiled, expected, found)
        if self.report.finding is None and expected.differentiable and self._updates:
            self._compare_steps(Loss(expected.differentiable))
        self.report.finding = self.report.finding or self.rounding

    def _compare_steps(self, loss: Loss) -> None:
        self.progress("tracing the whole step")
        subject = self._fresh()
        try:
            road = step_road(subject, self._optimizer(subject), loss)
        except (CaptureError, TrainingError, UnsupportedOperators) as error:
            self._note(f"the optimizer was not compared: {error.message}")
            return
        self.report.finding = self._walked([road])
        if self.report.finding is None and self.rounding is None:
            self.progress("running the whole step")
            subject, other = self._fresh(), None
            expected = updated(subject, self._optimizer(subject), loss, compiled=False)
            try:
                other = self._stepped(loss)(config.engine)
            except TrainingError as error:
                self._note(f"compile_step itself was not run: {error.message}")
                return
            self.report.finding = self._results([road], self._stepped(loss), expected, other)

    def _compiled(self, engine: str) -> Results:
        dynamo.reset()
        try:
            return results_of(self._fresh(), compiled=True, engine=engine)
        finally:
            dynamo.reset()

    def _stepped(self, loss: Loss) -> Run:
        def run(engine: str) -> Results:
            subject = self._fresh()
            with override(engine=engine):
                return updated(subject, self._optimizer(subject), loss, compiled=True)

        return run

    def _fresh(self) -> Subject:
        """Return an independent copy in training mode, and seed the generator as for every run."""
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
        """Return the first wrong value on ``roads``; note the first one that rounding explains."""
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
            exact = self._accumulated(road, values, known)
            found = self._fused(road, values, exact)
            if found is not None:
                return found
        return None

    def _fused(self, road: Road, values: Mapping[Node, Any], exact: Mapping[Node, Any]) -> Finding | None:
        """Return a value that is wrong only in the program that users run.

        Its only results are the graph's own, so that the engine fuses more of it.
        """

        if self.rounding is not None:
            return None  # values already differ by rounding, so fusion may change them too

        def wrong(engine: str) -> dict[Node, Comparison]:
            judged = {
                node: self.judge.operator(one, values[node], exact[node], list)
                for node, one in road.piece.results_on(engine).items()
                if not is_drawn(node)
            }
            return {node: one for node, one in judged.items() if one is not None and not one.passed}

        for node, comparison in wrong(config.engine).items():
            said = self._opinions(partial(_lacks, node, wrong))
            kind = Kind.ENGINE if "right" in said.values() else Kind.UNDECIDED
            reason = (
                "every operator is right where all values are results of the program, and this one is wrong "
                "where only the graph's own results are: the engine fuses operators wrongly"
            )
            return self._finding(road, source_of(node), Verdict(kind, reason, comparison, road.piece, said))
        return None

    def _opinions(self, right: Callable[[str], bool]) -> dict[str, str]:
        """Return the verdict on each engine: the one in use is wrong, ``right`` tells it for the others."""
        said = {config.engine: "wrong"}
        for engine in (name for name in ENGINES if name != config.engine):
            try:
                said[engine] = "right" if right(engine) else "wrong"
            except TorchstoneError as error:
                said[engine] = cannot_run(error)
        return said

    def _accumulated(
        self, road: Road, values: Mapping[Node, Any], known: dict[str, tuple[Tensor, Tensor | None]]
    ) -> Mapping[Node, Any]:
        """Note the first value that departs although every operator is right; return float64's values.

        ``known`` has eager's and float64's values of the tensors that one graph saves for the next.
        """
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
                arbiter = Arbiter(piece, dict(values), config.engine, self.judge)
                reason = (
                    "every operator before it, and this one, is right by itself: the differences of their "
                    "roundings add up to this"
                )
                judged = self.judge.operator(values[node], expected, exact[node], list)
                if judged is not None and judged.accuracy is not None:
                    reason += f"; {judged.accuracy.text()}"
                verdict = Verdict(Kind.ROUNDING, reason, comparison, arbiter.accumulating(node), {})
                self.rounding = self._finding(road, node, verdict)
        return exact

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

    def _results(self, roads: list[Road], run: Run, expected: Results, found: Results) -> Finding | None:
        """Return a result that departs although every operator is right; the cause is around the operators.

        ``run`` returns the results on an engine.
        """
        if self.rounding is not None:
            return None
        if any(is_drawn(node) for road in roads for node in road.piece.nodes):
            self._note(
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
            if not comparison.passed:
                said = self._opinions(partial(self._agrees, name, one, run))
                engine = "right" in said.values()
                reason = "every operator of the graphs is right by itself, and this result is not: " + (
                    "another engine runs the same programs right"
                    if engine
                    else "a decomposition, a compiler pass or the return of results changes it"
                )
                return Finding(
                    Kind.ENGINE if engine else Kind.LOWERING,
                    _PHASES.get(name.partition(" ")[0], "forward"),
                    "",
                    name,
                    None,
                    None,
                    roads[-1].name.partition(" ")[0],
                    reason,
                    comparison,
                    said,
                )
        return None

    def _agrees(self, name: str, expected: Tensor, run: Run, engine: str) -> bool:
        return self.judge.plain(run(engine).values[name], expected).passed

    def _note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)


def _lacks(node: Node, found: Callable[[str], Mapping[Node, Any]], engine: str) -> bool:
    return node not in found(engine)


_PHASES: Mapping[str, Phase] = {"gradient": "backward", "parameter": "optimizer", "state": "optimizer"}
"""The phase of a result by the first word of its name."""
