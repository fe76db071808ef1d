"""Compare a whole model through Torchstone with eager PyTorch: artifact, compiled forward, gradients.

Three stages are compared with eager by optest's comparator: the forward pass of
the exported artifact in a fresh process; the forward pass through
``torch.compile`` without fallback; the gradient of every parameter (and every
buffer after that training step). If a value misses float32's default tolerance, and always
under autocast, the model in float64 and eager runs with other roundings decide (:mod:`.judge`).
``torch.compile`` does not apply capture rules, so it gets the captured graph of a model that needs one.

The forward stages run in evaluation mode. Gradients are taken in training mode,
or in evaluation mode if the model is random in training mode (dropout).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy
import torch

from ..api import export
from ..compiler import bounds
from ..compiler.graphs import to_numpy
from ..compiler.rules import replacements
from ..errors import FallbackRefused, ModelError, TorchstoneError, UnsupportedOperators
from ..runtime import get_engine
from ..torch_internals import pytree
from ..torch_internals.dynamo import TorchDynamoException
from .alike import tensors
from .compilation import plain_errors, watched
from .judge import Judge, Others
from .model import Model
from .replay import output_specs, run_fresh
from .roundings import Reruns
from .steps import UPDATE, compiled_values, eager_values, step_values
from .subject import Subject, differentiate
from .verification import STAGES, TRAINING_STAGES, Check, DType, Stage, Verification

Array = numpy.ndarray[Any, Any]
T = TypeVar("T")


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

    With ``dtype`` float32 the model runs unchanged; float64 converts it and its
    inputs; bfloat16 and float16 run it under autocast. With ``rtol`` or ``atol``
    (the other one keeps its default) elements must be within that tolerance of
    eager's result, whatever float64 says. After ``steps`` training steps, if any, losses,
    parameters, buffers and the state of the ``optimizer`` (sgd, adamw) are compared. ``progress``
    is called with each stage as it begins. Resets Dynamo; does not change the model. Raises
    :class:`~torchstone.errors.DeviceNotFound` and other errors of the engine
    before anything is compiled. Errors within a stage are in the result.
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
                continue  # an earlier stage found that it has nothing to compare
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


_NOT_DIFFERENTIABLE = "is not differentiable with respect to argument"
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class _Work:
    """The model, its float64 twin and the result of one verification; stages work on copies.

    ``replaced`` names what capture rules replaced when the model was exported.
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
        """Compile ``subject`` by ``torch.compile``; if it needs capture rules, capture it first."""
        fallback = bool(self.model.in_eager)
        if not self.replaced:
            return subject.compiled(fallback=fallback)
        names = ", ".join(sorted(self.replaced))
        self.note(f"captured before torch.compile, because of the capture rules for {names}")
        with self.bounds():
            return subject.captured().compiled(fallback=fallback)

    @cached_property
    def eager_results(self) -> tuple[Any, Any]:
        """Eager's result in evaluation mode, and its result in float64 (None if eager cannot run that)."""
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
        """Note an error in the block: if eager lacks a float64 kernel, the tolerance alone decides."""
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
        """Whether gradients are compared in training mode; they are not if the model is random in it."""
        training = not _is_random(self)
        if not training:
            self.note("random in training mode (dropout?): gradients are compared in evaluation mode")
        return training

    @cached_property
    def eager_steps(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """The values of training steps in eager, and those in float64 (empty if eager cannot run that)."""
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

    @cached_property
    def other_steps(self) -> Others[dict[str, torch.Tensor]]:
        """The values of training steps in eager with other roundings."""

        def run(subject: Subject) -> dict[str, torch.Tensor]:
            return eager_values(subject, self.optimizer, self.steps, self.autocast())

        return self.others(lambda subject: subject.copy(training=self.training), run)

    @cached_property
    def other_results(self) -> Others[Any]:
        """Eager's results in evaluation mode with other roundings."""

        def run(subject: Subject) -> Any:
            with torch.no_grad(), self.autocast():
                return subject.result()

        return self.others(self._reference, run)

    def others(self, copied: Callable[[Subject], Subject], run: Callable[[Subject], T]) -> Others[T]:
        """Return the results of ``run`` on copies with other roundings; none if eager cannot run that."""

        def noted(results: Callable[[], list[T]]) -> list[T]:
            try:
                return results()
            except (RuntimeError, NotImplementedError) as error:
                first_line = str(error).partition("\n")[0]
                self.note(f"eager cannot run the model with other roundings: {first_line}")
                return []

        given = partial(copied, self.subject)
        return Others(partial(noted, Reruns(given, run)), partial(noted, Reruns(given, run, onednn=False)))

    def differentiated(self, names: list[str]) -> dict[str, torch.Tensor | None]:
        """Return eager's gradients of ``names``; leaves that it does not differentiate leave that list."""
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
        """Add the verdict on each array, compared with eager's value at the same position."""
        wanted = _values(expected, len(found))
        exact: Sequence[torch.Tensor | None] = [None] * len(found)
        if truth is not None:
            exact = _values(truth, len(found))
        for i, (name, array, want, true) in enumerate(zip(names, found, wanted, exact, strict=True)):

            def at_position(runs: Sequence[Any], i: int = i) -> list[torch.Tensor]:
                return [_values(one, len(found))[i] for one in runs]

            self.record(stage, name, array, want, true, self.other_results.each(at_position))

    def record(
        self,
        stage: Stage,
        name: str,
        found: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        others: Others[torch.Tensor],
    ) -> None:
        """Add the verdict on a value; ``others`` returns eager's values with other roundings."""
        if self.replaced and found.ndim == expected.ndim:  # elements beyond eager's sizes are padding
            found = found[tuple(map(slice, expected.shape))]
        what, comparison = self.judge.decide(
            found, expected, truth, others, in_training=stage in TRAINING_STAGES
        )
        self.result.checks.append(Check(stage, what + name, comparison))


@contextmanager
def _in_eager(what: str) -> Iterator[None]:
    """Turn an error of eager PyTorch in the block into a :class:`ModelError`."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"eager PyTorch cannot {what} the model: {type(error).__name__}: {error}",
            hint="nothing can be compared before it does: check the example inputs",
        ) from error


def _values(result: Any, count: int) -> list[torch.Tensor]:
    """Return the ``count`` tensors of a result; if there are fewer, its numbers count as tensors too."""
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

    def eager(subject: Subject) -> dict[str, torch.Tensor | None]:
        return _step(subject, work.autocast(), names)

    others = work.others(lambda subject: subject.copy(training=training), eager)
    for name, want in expected.items():
        got = found[name]
        if want is not None and got is not None:
            named = others.each(partial(_named, name))
            work.record("gradients", name, to_numpy(got), want, truth.get(name), named)
        elif want is not got:
            where = "eager PyTorch" if got is None else "the compiled model"
            raise _OneSided(f"{name} has a gradient only in {where}")
    if not any(check.stage == "gradients" for check in work.result.checks):
        work.without(
            "no result depends on a parameter or input differentiably", "gradients", *TRAINING_STAGES
        )


class _OneSided(TorchstoneError):
    """A value exists only in eager PyTorch or only in the compiled model."""


def _step(
    subject: Subject,
    autocast: AbstractContextManager[Any],
    names: Sequence[str],
    prepare: Callable[[Subject], Subject] = lambda subject: subject,
) -> dict[str, torch.Tensor | None]:
    """Run a forward and a backward pass; return dense gradients of ``names``, and the buffers after it."""
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
    if stage == "step" and work.model.in_eager:
        work.without("whole steps leave nothing to eager PyTorch", "step")
        return
    expected, truth = work.eager_steps
    found = run(work.subject.copy(training=work.training))
    if one_sided := sorted(expected.keys() ^ found.keys()):
        where = "eager PyTorch" if one_sided[0] in expected else "the compiled model"
        raise _OneSided(f"{one_sided[0]} exists only in {where}")
    for name, want in expected.items():
        if work.judge.is_fixed and name.startswith(UPDATE):
            continue  # mostly the rounding of the parameter, for which a tolerance of values does not fit
        others = work.other_steps.each(partial(_named, name))
        work.record(stage, name, to_numpy(found[name]), want, truth.get(name), others)


def _named(name: str, runs: Sequence[Mapping[str, torch.Tensor | None]]) -> list[torch.Tensor]:
    """Return the value ``name`` of each run that has it."""
    return [value for run in runs if (value := run.get(name)) is not None]


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
