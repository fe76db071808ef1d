"""A whole model through Torchstone beside eager PyTorch: artifact, compiled forward, gradients.

Three stages, each against eager with optest's comparator: the forward pass of
the exported artifact in a fresh process; the forward pass through
``torch.compile`` without fallback; the gradient of every parameter (and, after
that training step, every buffer). Where float32's default tolerance is missed,
and always under autocast, the error against the model in float64 decides.

The forward stages run in evaluation mode. Gradients are taken in training mode,
unless the model is random there (dropout): then in evaluation mode too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy
import torch
from torch._dynamo.exc import TorchDynamoException

from optest.core.comparator import compare
from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance, default_tolerance

from ..api import export
from ..compiler.graphs import to_numpy
from ..errors import TorchstoneError
from ..runtime import get_engine
from .compilation import Compilation, plain_errors, watched
from .model import Model
from .replay import output_specs, run_fresh
from .subject import Subject, differentiate

Array = numpy.ndarray[Any, Any]
Stage = Literal["artifact", "compiled", "gradients"]
DType = Literal["float32", "float64", "bfloat16", "float16"]

STAGES: tuple[Stage, ...] = ("artifact", "compiled", "gradients")


@dataclass(frozen=True)
class Check:
    """One tensor's verdict: ``name`` is a path such as ``output.logits`` or a parameter's name."""

    stage: Stage
    name: str
    comparison: Comparison


@dataclass(frozen=True)
class StageSummary:
    """A stage in short: the largest difference from eager, and how many tensors float64 had to judge."""

    stage: Stage
    tensors: int
    max_abs: float
    max_ulp: int
    by_float64: int
    verdict: str


@dataclass
class Verification:
    """Everything that :func:`verify` found.

    ``errors`` holds, by stage, why a stage could not be finished; ``notes`` what
    was done otherwise than usual.
    """

    model: str
    dtype: DType
    stages: tuple[Stage, ...]
    checks: list[Check] = field(default_factory=list)
    errors: dict[Stage, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    compilation: Compilation = field(default_factory=Compilation)

    @property
    def failures(self) -> list[Check]:
        return [check for check in self.checks if not check.comparison.passed]

    @property
    def passed(self) -> bool:
        """Every stage compared something, and all of it agrees, without fallback."""
        compared = {check.stage for check in self.checks}
        return (
            not self.errors
            and not self.failures
            and compared.issuperset(self.stages)
            and not self.compilation.fallbacks
        )

    def summary(self) -> list[StageSummary]:
        """One line for each stage."""
        lines = []
        for stage in self.stages:
            found = [check.comparison for check in self.checks if check.stage == stage]
            wrong = sum(not comparison.passed for comparison in found)
            lines.append(
                StageSummary(
                    stage=stage,
                    tensors=len(found),
                    max_abs=max((float(comparison.max_abs) for comparison in found), default=0.0),
                    max_ulp=max((comparison.max_ulp or 0 for comparison in found), default=0),
                    by_float64=sum(comparison.passed_by == "accuracy" for comparison in found),
                    verdict="error" if stage in self.errors else f"{wrong} differ" if wrong else "passed",
                )
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "dtype": self.dtype,
            "passed": self.passed,
            "checks": [
                {"stage": check.stage, "name": check.name, **check.comparison.to_dict()}
                for check in self.checks
            ],
            "errors": dict(self.errors),
            "notes": list(self.notes),
            "compilation": self.compilation.to_dict(),
        }


def verify(
    model: Model,
    *,
    dtype: DType = "float32",
    rtol: float | None = None,
    atol: float | None = None,
    gradients: bool = True,
    progress: Callable[[str], None] = lambda stage: None,
) -> Verification:
    """Run ``model`` through every stage and compare with eager PyTorch.

    ``dtype`` float32 takes the model as it is, float64 converts it and its
    inputs, bfloat16 and float16 run it under autocast. With ``rtol`` or ``atol``
    (the other one keeps its default) elements must be within that tolerance of
    eager's result, whatever float64 says. ``progress`` is told each stage as it
    begins. Resets Dynamo; the model itself is left as it was. Raises
    :class:`~torchstone.errors.DeviceNotFound` and other errors of the engine
    before anything is compiled; what goes wrong in a stage is in the result.
    """
    get_engine()
    stages = STAGES if gradients else STAGES[:-1]
    result = Verification(model.name, dtype, stages)
    work = _Work(model, dtype, Judge(dtype, rtol, atol), result)
    with watched() as result.compilation:
        for stage in stages:
            progress(_DOING[stage])
            try:
                with plain_errors():
                    _RUN[stage](work)
            except (TorchstoneError, TorchDynamoException) as error:
                result.errors[stage] = str(error)
    return result


@dataclass(frozen=True)
class Judge:
    """The comparison that a dtype and the user's tolerances ask for."""

    dtype: DType
    rtol: float | None
    atol: float | None

    def __call__(self, actual: Array, expected: Array, truth: Array | None) -> Comparison:
        if expected.dtype.kind in "biu":
            return compare(actual, expected)
        if self.rtol is not None or self.atol is not None:
            default = default_tolerance(expected.dtype)
            rtol = default.rtol if self.rtol is None else self.rtol
            atol = default.atol if self.atol is None else self.atol
            return compare(actual, expected, Tolerance(rtol, atol))
        if truth is None or truth.shape != expected.shape:
            return compare(actual, expected)
        mode: Literal["accuracy", "allclose"] = "accuracy" if self.dtype in _AUTOCAST else "allclose"
        return compare(actual, expected, reference=truth, mode=mode)


_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class _Work:
    """The model, its float64 twin and the record; stages work on copies."""

    def __init__(self, model: Model, dtype: DType, judge: Judge, result: Verification) -> None:
        self.judge, self.result = judge, result
        self.amp = _AUTOCAST.get(dtype)
        given = Subject(model.model, model.args, model.kwargs)
        self.subject = given.doubled() if dtype == "float64" else given
        self.exact = given.doubled() if dtype != "float64" else None

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", self.amp) if self.amp is not None else nullcontext()

    def eager_outputs(self) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
        """Eager's outputs in evaluation mode, and the same in float64 (None where eager cannot)."""
        with torch.no_grad(), self.autocast():
            expected = self.subject.copy(training=False)()
        truth: list[torch.Tensor | None] = [None] * len(expected)
        if self.exact is not None:
            with torch.no_grad(), self.float64_or_note():
                truth = [*self.exact.copy(training=False)()]
        return expected, truth

    @contextmanager
    def float64_or_note(self) -> Iterator[None]:
        """Eager has no float64 kernel for everything; the tolerance alone decides then."""
        try:
            yield
        except (RuntimeError, NotImplementedError) as error:
            first_line = str(error).partition("\n")[0]
            self.note(f"eager cannot run the model in float64: {first_line}")

    def note(self, text: str) -> None:
        if text not in self.result.notes:
            self.result.notes.append(text)

    def record(
        self, stage: Stage, name: str, found: Array, expected: torch.Tensor, truth: torch.Tensor | None
    ) -> None:
        comparison = self.judge(found, to_numpy(expected), None if truth is None else to_numpy(truth))
        self.result.checks.append(Check(stage, name, comparison))


# --- stages ----------------------------------------------------------------------------


def _check_artifact(work: _Work) -> None:
    expected, truth = work.eager_outputs()
    subject = work.subject.copy(training=False)
    inputs = [to_numpy(tensor).copy() for tensor in subject.inputs()]
    with torch.no_grad(), work.autocast():
        program = export(subject.model, subject.args, subject.kwargs)
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        found = run_fresh(program.save(Path(folder, "model.stone")), inputs)
    for name, array, want, true in zip(output_specs(program.signature), found, expected, truth, strict=True):
        work.record("artifact", name, array, want, true)


def _check_compiled(work: _Work) -> None:
    expected, truth = work.eager_outputs()
    with torch.no_grad(), work.autocast():
        found = work.subject.copy(training=False).compiled()()
    for position, (tensor, want, true) in enumerate(zip(found, expected, truth, strict=True)):
        work.record("compiled", f"output {position}", to_numpy(tensor), want, true)


def _check_gradients(work: _Work) -> None:
    training = not _is_random(work)
    if not training:
        work.note("random in training mode (dropout?): gradients are compared in evaluation mode")
    if not work.subject.copy(training=training).leaves():
        work.result.stages = STAGES[:-1]
        work.note("there is nothing to differentiate: no parameters, no floating-point inputs")
        return
    expected = _step(work.subject.copy(training=training), work.autocast())
    truth: dict[str, torch.Tensor | None] = {}
    if work.exact is not None:
        with work.float64_or_note():
            truth = _step(work.exact.copy(training=training))
    found = _step(work.subject.copy(training=training), work.autocast(), through_compile=True)
    for name, want in expected.items():
        got = found[name]
        if want is not None and got is not None:
            work.record("gradients", name, to_numpy(got), want, truth.get(name))
        elif want is not got:
            where = "eager PyTorch" if got is None else "the compiled model"
            raise _OneSided(f"{name} has a gradient in {where} only")


class _OneSided(TorchstoneError):
    """A parameter has a gradient in one of eager and compiled only."""


def _step(
    subject: Subject, autocast: AbstractContextManager[Any] | None = None, *, through_compile: bool = False
) -> dict[str, torch.Tensor | None]:
    """Gradients, and buffers afterwards, of one forward and backward pass."""
    leaves = subject.leaves()
    with autocast or nullcontext():
        outputs = (subject.compiled() if through_compile else subject)()
    gradients = differentiate(outputs, leaves)
    return {**gradients, **{f"buffer {name}": buffer for name, buffer in subject.buffers().items()}}


def _is_random(work: _Work) -> bool:
    """Whether two runs of the model in training mode, from different seeds, differ."""
    runs = []
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]), torch.no_grad(), work.autocast():
            torch.manual_seed(seed)
            runs.append(work.subject.copy(training=True)())
    return not all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


_RUN: dict[Stage, Callable[[_Work], None]] = {
    "artifact": _check_artifact,
    "compiled": _check_compiled,
    "gradients": _check_gradients,
}
_DOING: dict[Stage, str] = {
    "artifact": "exporting, and running the artifact in a fresh process",
    "compiled": "running the compiled forward pass",
    "gradients": "running the compiled forward and backward pass",
}
