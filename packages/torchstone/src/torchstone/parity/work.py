"""What the stages of a verification share: the model in all its forms, eager's values, and the verdicts.

Not here: the stages (:mod:`.verify`), and the rules of a verdict (:mod:`.judge`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy
import torch

from ..compiler import bounds
from ..errors import ModelError, TorchstoneError
from ..torch_internals import pytree
from .alike import tensors
from .judge import Judge, Others
from .model import Model
from .roundings import Reruns
from .steps import eager_values
from .subject import Subject, differentiate
from .verification import TRAINING_STAGES, Check, DType, Stage, Verification

Array = numpy.ndarray[Any, Any]
T = TypeVar("T")

_NOT_DIFFERENTIABLE = "is not differentiable with respect to argument"
_AUTOCAST = {"bfloat16": torch.bfloat16, "float16": torch.float16}


class Work:
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
            with in_eager_pytorch("run"):
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
        with in_eager_pytorch("train"):
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
            return gradients_of(self.subject.copy(training=self.training), self.autocast(), names)
        except RuntimeError as error:
            if len(names) == 1 or _NOT_DIFFERENTIABLE not in str(error):
                raise
        for name in tuple(names):
            try:
                self.differentiated([name])
            except RuntimeError:
                names.remove(name)
                self.note(f"eager PyTorch does not differentiate {name}")
        return gradients_of(self.subject.copy(training=self.training), self.autocast(), names)

    def without(self, reason: str, *stages: Stage) -> None:
        """Leave out stages that have nothing to compare."""
        left_out = [one for one in stages if one in self.result.stages]
        self.result.stages = tuple(one for one in self.result.stages if one not in left_out)
        self.note(f"not compared ({', '.join(left_out)}): {reason}")

    def record_results(
        self, stage: Stage, names: Sequence[str], found: Sequence[Array], expected: Any, truth: Any
    ) -> None:
        """Add the verdict on each array, compared with eager's value at the same position."""
        wanted = values_of(expected, len(found))
        exact: Sequence[torch.Tensor | None] = [None] * len(found)
        if truth is not None:
            exact = values_of(truth, len(found))
        for i, (name, array, want, true) in enumerate(zip(names, found, wanted, exact, strict=True)):

            def at_position(runs: Sequence[Any], i: int = i) -> list[torch.Tensor]:
                return [values_of(one, len(found))[i] for one in runs]

            others = self.other_results.each(at_position)
            self.result.checks.append(self.check(stage, name, array, want, true, others))

    def check(
        self,
        stage: Stage,
        name: str,
        found: Array,
        expected: torch.Tensor,
        truth: torch.Tensor | None,
        others: Others[torch.Tensor],
    ) -> Check:
        """Return the verdict on a value; ``others`` returns eager's values with other roundings."""
        if self.replaced and found.ndim == expected.ndim:  # elements beyond eager's sizes are padding
            found = found[tuple(map(slice, expected.shape))]
        what, comparison = self.judge.decide(
            found, expected, truth, others, in_training=stage in TRAINING_STAGES
        )
        return Check(stage, what + name, comparison)


@contextmanager
def in_eager_pytorch(what: str) -> Iterator[None]:
    """Turn an error of eager PyTorch in the block into a :class:`ModelError`."""
    try:
        yield
    except Exception as error:
        raise ModelError(
            f"eager PyTorch cannot {what} the model: {type(error).__name__}: {error}",
            hint="nothing can be compared before it does: check the example inputs",
        ) from error


def values_of(result: Any, count: int) -> list[torch.Tensor]:
    """Return the ``count`` tensors of a result; if there are fewer, its numbers count as tensors too."""
    found = tensors(result)
    if len(found) < count:
        found = [torch.as_tensor(leaf) for leaf in pytree.tree_leaves(result) if leaf is not None]
    if len(found) != count:
        raise OneSided(f"eager PyTorch returns {len(found)} tensors, the compiled model {count}")
    return found


class OneSided(TorchstoneError):
    """A value exists only in eager PyTorch or only in the compiled model."""


def gradients_of(
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


def values_named(name: str, runs: Sequence[Mapping[str, torch.Tensor | None]]) -> list[torch.Tensor]:
    """Return the value ``name`` of each run that has it."""
    return [value for run in runs if (value := run.get(name)) is not None]


def _is_random(work: Work) -> bool:
    """Whether two runs of the model in training mode, from different seeds, differ."""
    runs = []
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]), torch.no_grad(), work.autocast():
            torch.manual_seed(seed)
            runs.append(work.subject.copy(training=True)())
    return not all(torch.equal(one, other) for one, other in zip(*runs, strict=True))
