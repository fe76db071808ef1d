"""A whole model through Torchstone compared with eager PyTorch: artifact, compiled forward, gradients.

Three stages, each against eager with optest's comparator: the forward pass of
the exported artifact in a fresh process; the forward pass through
``torch.compile`` without fallback; the gradient of every parameter (and, after
that training step, every buffer). Where float32's default tolerance is missed,
and always under autocast, the error against the model in float64 decides.
``torch.compile`` knows no capture rules: of a model that needs one it gets the captured graph.

The forward stages run in evaluation mode. Gradients are taken in training mode,
unless the model is random there (dropout): then in evaluation mode too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy
import torch

from optest.core.comparator import compare
from optest.core.comparison import Comparison
from optest.core.tolerance import Tolerance, default_tolerance

from ..api import export
from ..compiler import bounds
from ..compiler.graphs import to_numpy
from ..compiler.rules import replacements
from ..errors import FallbackRefused, ModelError, TorchstoneError, UnsupportedOperators
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.dynamo import TorchDynamoException
from .compilation import plain_errors, watched
from .model import Model
from .replay import output_specs, run_fresh
from .steps import compiled_values, eager_values, scale_of, step_values
from .subject import Subject, differentiate, tensors
from .verification import STAGES, TRAINING_STAGES, Check, DType, Stage, Verification

Array = numpy.ndarray[Any, Any]


def verify(
    model: Model,
    *,
    dtype: DType = "float32",
    rtol: float | None = None,
    atol: float | None = None,
    gradients: bool = True,
    steps: int = 0,
    optimizer: str = "sgd",
    progress: Callable[[str], None] = lambda stage: None,
) -> Verification:
    """Run ``model`` through every stage and compare with eager PyTorch.

    ``dtype`` float32 takes the model as it is, float64 converts it and its
    inputs, bfloat16 and float16 run it under autocast. With ``rtol`` or ``atol``
    (the other one keeps its default) elements must be within that tolerance of
    eager's result, whatever float64 says. After ``steps`` training steps, if any, losses,
    parameters, buffers and the state of the ``optimizer`` (sgd, adamw) are compared. ``progress``
    is told each stage as it begins. Resets Dynamo; the model itself is left as it was. Raises
    :class:`~torchstone.errors.DeviceNotFound` and other errors of the engine
    before anything is compiled; what goes wrong in a stage is in the result.
    """
    get_engine()
    stages = (STAGES if gradients else STAGES[:-1]) + (TRAINING_STAGES if steps else ())
    result = Verification(model.name, dtype, stages, in_eager=model.in_eager)
    work = _Work(model, dtype, Judge(dtype, rtol, atol), result, steps, optimizer)
    try:
        work.eager_results  # noqa: B018 - they are kept
    except ModelError as error:
        result.errors.update(dict.fromkeys(stages, str(error)))
        return result
    with watched() as result.compilation:
        for stage in stages:
            if stage not in result.stages:
                continue  # an earlier one found nothing to compare
            progress(_DOING[stage])
            try:
                with plain_errors():
                    _RUN[stage](work)
            except (TorchstoneError, TorchDynamoException.get()) as error:
                result.errors[stage] = str(error)
                if isinstance(error, (UnsupportedOperators, FallbackRefused)):
                    result.refused(error.nodes)
    result.refused(node for record in result.compilation.records for node in record.fallbacks)
    return result


@dataclass(frozen=True)
class Judge:
    """The comparison that a dtype and the user's tolerances ask for."""

    dtype: DType
    rtol: float | None
    atol: float | None

    def __call__(
        self, actual: Array, expected: Array, truth: Array | None, rounding: float = 0.0
    ) -> Comparison:
        """``rounding`` is an error that float64 excuses in any element."""
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
        bound = numpy.full(expected.shape, rounding)
        return compare(actual, expected, reference=truth, bound=bound, mode=mode)


_NOT_DIFFERENTIABLE = "is not differentiable with respect to argument"
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class _Work:
    """The model, its float64 twin and the record; stages work on copies.

    ``replaced`` is what capture rules replaced when the model was exported.
    """

    def __init__(
        self,
        model: Model,
        dtype: DType,
        judge: Judge,
        result: Verification,
        steps: int,
        optimizer: str,
    ) -> None:
        self.steps, self.optimizer = steps, optimizer
        self.model, self.judge, self.result = model, judge, result
        self.amp = _AUTOCAST.get(dtype)
        given = Subject(model.model, model.args, model.kwargs)
        self.subject = given.doubled() if dtype == "float64" else given
        self.exact = given.doubled() if dtype != "float64" else None
        self.replaced: set[str] = set()

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cpu", self.amp) if self.amp is not None else nullcontext()

    def bounds(self) -> AbstractContextManager[Any]:
        return bounds(**self.model.bounds)

    def through_compile(self, subject: Subject) -> Subject:
        """``subject`` for ``torch.compile``: captured before, where capture rules are needed."""
        fallback = bool(self.model.in_eager)
        if not self.replaced:
            return subject.compiled(fallback=fallback)
        names = ", ".join(sorted(self.replaced))
        self.note(f"captured before torch.compile, because of the capture rules for {names}")
        with self.bounds():
            return subject.captured().compiled(fallback=fallback)

    @cached_property
    def eager_results(self) -> tuple[Any, Any]:
        """What eager returns in evaluation mode, and the same in float64 (None where eager cannot)."""
        with torch.no_grad(), self.autocast():
            reference = self._reference(self.subject)
            with _in_eager("run"):
                expected = reference.result()
        truth = None
        if self.exact is not None:
            with torch.no_grad(), self.float64_or_note():
                truth = self._reference(self.exact).result()
        return expected, truth

    def _reference(self, subject: Subject) -> Subject:
        model = self.model.reference or subject.model
        return Subject(model, subject.args, subject.kwargs).copy(training=False)

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

    @cached_property
    def training(self) -> bool:
        """Whether the model is compared in training mode: not if it is random there."""
        training = not _is_random(self)
        if not training:
            self.note("random in training mode (dropout?): gradients are compared in evaluation mode")
        return training

    @cached_property
    def eager_steps(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """What training steps in eager give, and the same in float64 (nothing where eager cannot)."""
        given = self.subject.copy(training=self.training)
        with _in_eager("train"):
            expected = eager_values(given, self.optimizer, self.steps, self.autocast())
        truth: dict[str, torch.Tensor] = {}
        if self.exact is not None:
            with self.float64_or_note():
                truth = eager_values(
                    self.exact.copy(training=self.training), self.optimizer, self.steps, nullcontext()
                )
        return expected, truth

    def differentiated(self, names: list[str]) -> dict[str, torch.Tensor | None]:
        """Eager's gradients of the leaves ``names``; what it does not differentiate leaves the list."""
        try:
            return _step(self.subject.copy(training=self.training), self.autocast(), names)
        except RuntimeError as error:
            if len(names) == 1 or _NOT_DIFFERENTIABLE not in str(error):
                raise
        for name in tuple(names):
            try:
                self.differentiated([name])
            except RuntimeError:
                names.remove(name)
                self.note(f"eager PyTorch does not differentiate {name}")
        return _step(self.subject.copy(training=self.training), self.autocast(), names)

    def without(self, reason: str, *stages: Stage) -> None:
        """Leave out stages that have nothing to compare."""
        left_out = [one for one in stages if one in self.result.stages]
        self.result.stages = tuple(one for one in self.result.stages if one not in left_out)
        self.note(f"not compared ({', '.join(left_out)}): {reason}")

    def record_results(
        self, stage: Stage, names: Sequence[str], found: Sequence[Array], expected: Any, truth: Any
    ) -> None:
        """Each array against the value that eager returned in its place."""
        wanted = _values(expected, len(found))
        exact: Sequence[torch.Tensor | None] = [None] * len(found)
        if truth is not None:
            exact = _values(truth, len(found))
        for name, array, want, true in zip(names, found, wanted, exact, strict=True):
            self.record(stage, name, array, want, true)

    def record(
        self,
        stage: Stage,
        name: str,
        found: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        rounding: float = 0.0,
    ) -> None:
        if self.replaced and found.ndim == expected.ndim:  # what lies beyond eager's sizes is padding
            found = found[tuple(map(slice, expected.shape))]
        exact = None if truth is None else to_numpy(truth)
        comparison = self.judge(found, to_numpy(expected), exact, rounding)
        self.result.checks.append(Check(stage, name, comparison))


@contextmanager
def _in_eager(what: str) -> Iterator[None]:
    """Raises :class:`ModelError` where eager PyTorch raises."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"eager PyTorch cannot {what} the model: {type(error).__name__}: {error}",
            hint="nothing can be compared before it does: check the example inputs",
        ) from error


def _values(result: Any, count: int) -> list[torch.Tensor]:
    """The ``count`` tensors of a result; its numbers too, where a program computes them."""
    found = tensors(result)
    if len(found) < count:
        found = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(result) if leaf is not None]
    if len(found) != count:
        raise _OneSided(f"eager PyTorch returns {len(found)} tensors, the compiled model {count}")
    return found


# --- stages ----------------------------------------------------------------------------


def _check_artifact(work: _Work) -> None:
    expected, truth = work.eager_results
    subject = work.subject.copy(training=False)
    inputs = [to_numpy(tensor).copy() for tensor in subject.inputs()]
    with torch.no_grad(), work.autocast(), work.bounds(), replacements() as work.replaced:
        program = export(subject.model, subject.args, subject.kwargs)
    with tempfile.TemporaryDirectory(prefix="torchstone-") as folder:
        found = run_fresh(program.save(Path(folder, "model.stone")), inputs)
    work.record_results("artifact", list(output_specs(program.signature)), found, expected, truth)


def _check_compiled(work: _Work) -> None:
    expected, truth = work.eager_results
    with torch.no_grad(), work.autocast():
        found = work.through_compile(work.subject.copy(training=False))()
    names = [f"output {position}" for position in range(len(found))]
    work.record_results("compiled", names, [to_numpy(tensor) for tensor in found], expected, truth)


def _check_gradients(work: _Work) -> None:
    if work.model.reference is not None:
        work.without("PyTorch has the model on accelerators only", "gradients", *TRAINING_STAGES)
        return
    training = work.training
    names = list(work.subject.copy(training=training).leaves())
    if not names:
        work.without("no parameters, no floating-point inputs", "gradients", *TRAINING_STAGES)
        return
    with _in_eager("differentiate"):
        expected = work.differentiated(names)
    truth: dict[str, torch.Tensor | None] = {}
    if work.exact is not None:
        with work.float64_or_note():
            truth = _step(work.exact.copy(training=training), nullcontext(), names)
    found = _step(work.subject.copy(training=training), work.autocast(), names, work.through_compile)
    for name, want in expected.items():
        got = found[name]
        if want is not None and got is not None:
            work.record("gradients", name, to_numpy(got), want, truth.get(name))
        elif want is not got:
            where = "eager PyTorch" if got is None else "the compiled model"
            raise _OneSided(f"{name} has a gradient in {where} only")
    if not any(check.stage == "gradients" for check in work.result.checks):
        work.without(
            "no result depends on a parameter or input differentiably", "gradients", *TRAINING_STAGES
        )


class _OneSided(TorchstoneError):
    """A parameter has a gradient in one of eager and compiled only."""


def _step(
    subject: Subject,
    autocast: AbstractContextManager[Any],
    names: Sequence[str],
    prepare: Callable[[Subject], Subject] = lambda subject: subject,
) -> dict[str, torch.Tensor | None]:
    """Gradients, dense, of the leaves ``names``, and buffers afterwards, of a forward and backward pass."""
    leaves = subject.leaves()
    for name in leaves.keys() - set(names):
        leaves.pop(name).requires_grad_(False)
    with autocast:
        outputs = prepare(subject)()
    gradients = differentiate(outputs, leaves)
    dense = {name: None if each is None else each.to_dense() for name, each in gradients.items()}
    return {**dense, **{f"buffer {name}": buffer for name, buffer in subject.buffers().items()}}


def _check_training(work: _Work) -> None:
    def run(subject: Subject) -> dict[str, torch.Tensor]:
        return compiled_values(subject, work.optimizer, work.steps, work.autocast(), work.through_compile)

    _compare_steps(work, "training", run)


def _check_step(work: _Work) -> None:
    def run(subject: Subject) -> dict[str, torch.Tensor]:
        return step_values(subject, work.optimizer, work.steps, work.autocast())

    _compare_steps(work, "step", run)


def _compare_steps(work: _Work, stage: Stage, run: Callable[[Subject], dict[str, torch.Tensor]]) -> None:
    model = work.subject.model
    if not isinstance(model, torch.nn.Module) or not any(p.requires_grad for p in model.parameters()):
        work.without("no parameters", *TRAINING_STAGES)
        return
    if stage == "step" and (work.replaced or work.model.in_eager):
        why = "know no capture rules" if work.replaced else "leave nothing to eager PyTorch"
        work.without(f"whole steps {why}", "step")
        return
    expected, truth = work.eager_steps
    found = run(work.subject.copy(training=work.training))
    if one_sided := sorted(expected.keys() ^ found.keys()):
        where = "eager PyTorch" if one_sided[0] in expected else "the compiled model"
        raise _OneSided(f"{one_sided[0]} is there in {where} only")
    largest = _largest_of_kinds(truth)
    for name, want in expected.items():
        # Relative to the largest element: gradients of a mean are far below any absolute tolerance.
        scale = scale_of(want)
        true = truth.get(name)
        rounding = 0.0
        if want.is_floating_point():
            rounding = _ROUNDINGS * torch.finfo(want.dtype).eps * largest.get(_kind(name), 0.0) * scale
        true = None if true is None else true * scale
        work.record(stage, name, to_numpy(found[name] * scale), want * scale, true, rounding)


_ROUNDINGS = 2
"""How many roundings of the largest gradient a gradient may be off, as small as it is.

Eager's own errors are up to 1.3 of them. The gradient of a bias before a normalization is zero, and what
is computed for it is nothing but such errors.
"""


def _kind(name: str) -> str:
    return name.partition(" of ")[0]


def _largest_of_kinds(values: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """The largest element among all gradients, and among all tensors of each kind of optimizer state."""
    largest: dict[str, float] = {}
    for name, value in values.items():
        if " of " in name and value.numel():
            largest[_kind(name)] = max(largest.get(_kind(name), 0.0), float(value.abs().max()))
    return largest


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
    "training": _check_training,
    "step": _check_step,
}
_DOING: dict[Stage, str] = {
    "artifact": "exporting, and running the artifact in a fresh process",
    "compiled": "running the compiled forward pass",
    "gradients": "running the compiled forward and backward pass",
    "training": "training through torch.compile",
    "step": "training by whole steps",
}
