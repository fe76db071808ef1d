"""Judge training one step at a time, where rounding does not explain the values after several steps.

In some models a rounding decides between branches at a step: behind a batch norm over two values,
it decides the sign at a ReLU. Each run then goes its own way, and no two runs meet again. So eager PyTorch
starts each step from the state in which the compiled run starts it, and each step is judged by the rules of
one step (:mod:`.judge`). No tolerance changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch

from ..compiler.graphs import to_numpy
from .judge import Others
from .steps import UPDATE, State, Values, eager_step
from .subject import Subject
from .verification import Check, Stage
from .work import Array, Work, in_eager_pytorch, values_named

Compared = tuple[Array, torch.Tensor, torch.Tensor | None]
"""The compiled value, eager's and float64's."""
_NAMED = 3
"""How many of the values that are not explained are named."""


class StepByStep:
    """A :data:`~.steps.Watch` that compares each step of a compiled run with eager's from the same state.

    ``checks`` has the verdicts on all values of all steps, or, if a step has values that are not explained,
    those on these values of the first such step.
    """

    def __init__(self, work: Work, stage: Stage) -> None:
        self.work, self.stage = work, stage
        self.checks: list[Check] = []
        self.branches: list[int] = []
        """The steps, counted from 1, in which rounding decides between branches."""
        self.failed: tuple[int, list[str]] | None = None
        """The first step that is not explained, counted from 1, and the names of its values."""
        self._start: Mapping[str, torch.Tensor] = {}
        self._whole: Values = {}

    def __call__(self, state: State, found: Values) -> None:
        """Compare a step that began in ``state`` and has the values ``found``.

        Raises :class:`~torchstone.errors.ModelError` if eager PyTorch cannot make the step.
        """
        self._start = self._start or state.tensors
        self._whole |= found
        if self.failed is not None:
            return
        expected, truth, others = self._eager(state)
        number = state.step + 1
        wrong = sorted(expected.keys() ^ found.keys())
        checks = []
        for name in expected.keys() & found.keys() if wrong else expected:
            values = to_numpy(found[name]), expected[name], truth.get(name)
            named = others.each(partial(values_named, name))
            check = self.work.check(self.stage, name, *values, named)
            label = f"step {number}: {check.name}"
            checks.append(Check(self.stage, label, check.comparison))
            if not check.comparison.passed:
                wrong.append(check.name)
            elif self._is_branch(check, number, values, named):
                self.branches.append(number)
        if wrong:
            self.failed = number, wrong
            self.checks = [check for check in checks if not check.comparison.passed]
        else:
            self.checks += checks

    def explains(self, found: Values) -> bool:
        """Whether each step is explained, rounding decides between branches, and the run ended in ``found``.

        ``found`` has the values of the run that was judged first: gradients, losses, and the final state.
        """
        return self.failed is None and bool(self.branches) and not self._other(found)

    def reason(self, found: Values) -> str:
        """Return a sentence that says whether the steps are explained, and why."""
        if self.failed is not None:
            number, names = self.failed
            more = f", and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            return f"judged step by step: step {number} differs by itself ({', '.join(names[:_NAMED])}{more})"
        if other := self._other(found):
            return f"not judged step by step: the compiled training gave another {other[0]} when repeated"
        if not self.branches:
            return "judged step by step: no step differs by itself, and rounding decides nothing in any step"
        steps = ", ".join(map(str, self.branches))
        return f"judged step by step: rounding decides between branches (in step {steps}), no step differs"

    def _is_branch(self, check: Check, number: int, values: Compared, others: Others[torch.Tensor]) -> bool:
        """Whether a value that passed is the first of its step in another branch than eager's."""
        if check.comparison.passed_by != "accuracy" or number in self.branches:
            return False
        return self.work.judge.is_other_branch(*values, others, in_training=True)

    def _eager(self, state: State) -> tuple[Values, Values, Others[Values]]:
        """Return eager's values of one step from ``state``, float64's, and those with other roundings."""
        work = self.work

        def copied(subject: Subject) -> Subject:
            return state.given_to(subject.copy(training=work.training))

        def run(subject: Subject) -> Values:
            return eager_step(subject, work.optimizer, state, work.autocast())

        with in_eager_pytorch("train"):
            expected = run(copied(work.subject))
            assert work.exact is not None
            truth = eager_step(copied(work.exact), work.optimizer, state)
        return expected, truth, work.others(copied, run)

    def _other(self, found: Values) -> list[str]:
        """Return the names of values in ``found`` that are not exactly those of the steps."""
        whole = dict(self._whole)
        for name in whole:
            if name.startswith(UPDATE):
                own = name.removeprefix(UPDATE)
                whole[name] = whole[f"parameter {own}"] - self._start[own]
        return [
            name
            for name in sorted(found.keys() | whole.keys())
            if name not in found or name not in whole or not _same(found[name], whole[name])
        ]


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bits."""
    return to_numpy(one).tobytes() == to_numpy(other).tobytes()
