"""Shrinks a failing case to the smallest shapes and simplest values that still fail the same way.

Candidates run in worker processes, so that crashes and hangs shrink too. Not here: the
script that shows the result (``optest.running.replay``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..backends.driver import BackendDriver
from ..core.case import TestCase
from ..core.dtypes import kind_of
from ..core.result import CaseResult, Status
from ..errors import OptestError, UsageError
from ..operators.descriptor import Shape
from ..operators.domain import ANY
from .execution import Array, Arrays, CaseFailed, expect, generate
from .executor import IsolatedExecutor, TaskTimedOut, WorkerDied
from .handle import DriverHandle, run_in_worker, start_worker
from .task import CaseTask, Task

_ATTEMPTS = 400
_SECONDS = 120.0


@dataclass(frozen=True)
class Shrunk:
    """A case with explicit inputs, and its result."""

    case: TestCase
    inputs: Arrays
    result: CaseResult


def shrink(case: TestCase, driver: BackendDriver, *, timeout: float = 30.0) -> Shrunk:
    """Return the smallest case found that fails with the same status as ``case``.

    ``timeout`` limits one attempt, in seconds. Raises :class:`UsageError` if ``case`` does not fail.
    """
    with attempts_on(driver, timeout) as attempts:
        return _Search(case, attempts).run()


class Attempts:
    """Runs candidates in a worker process, as long as there are attempts and time left."""

    def __init__(self, handle: DriverHandle, executor: IsolatedExecutor) -> None:
        self._handle, self._executor = handle, executor
        self._left = _ATTEMPTS
        self._limit = time.monotonic() + _SECONDS

    @property
    def left(self) -> bool:
        return self._left > 0 and time.monotonic() < self._limit

    def run(self, task: Task) -> CaseResult:
        """Return the record of a task's only case, even if the worker died."""
        self._left -= 1
        try:
            [result] = self._executor.submit(run_in_worker, self._handle, task).result().results
        except WorkerDied as death:
            return task.record(
                Status.CRASHED, str(death), signal=death.signal, exit_code=death.exit_code,
                stderr_tail=death.stderr_tail,
            )  # fmt: skip
        except TaskTimedOut as late:
            return task.record(Status.TIMED_OUT, str(late), stderr_tail=late.stderr_tail)
        assert isinstance(result, CaseResult)
        return result

    def first(self, task: Task, case_id: str, what: str) -> CaseResult:
        """Return the record of the case to shrink; raises :class:`UsageError` if it does not fail."""
        result = self.run(task)
        if not result.status.failed:
            raise UsageError(
                f"the case {case_id} ({what}) does not fail on {self._handle.name} ({result.status})",
                "there is nothing to shrink; run it with `optest replay`",
            )
        return result


@contextmanager
def attempts_on(driver: BackendDriver, timeout: float) -> Iterator[Attempts]:
    """Yield an :class:`Attempts` for ``driver``; each attempt takes at most ``timeout`` seconds."""
    handle = DriverHandle(driver)
    with IsolatedExecutor(1, timeout=timeout, start=partial(start_worker, handle)) as executor:
        yield Attempts(handle, executor)


class _Search:
    """A greedy search: a candidate that still fails the same way replaces the best one so far.

    It ends when no candidate fails or the time is up.
    """

    def __init__(self, case: TestCase, attempts: Attempts) -> None:
        self.attempts = attempts
        inputs, _ = generate(case)
        result = attempts.first(CaseTask(case, inputs=inputs), case.id, case.describe())
        self.best = Shrunk(case, inputs, result)

    def run(self) -> Shrunk:
        while self._smaller_shape():
            pass
        for place in range(len(self.best.inputs)):
            self._simpler_values(place)
        return self.best

    def _smaller_shape(self) -> bool:
        for shapes in _smaller(self.best.case):
            case = replace(self.best.case, shapes=shapes)
            try:
                case.descriptor.check_shapes(shapes, case.attributes)
            except (OptestError, ValueError, IndexError, TypeError, ArithmeticError):
                continue
            for inputs in self._inputs_of(case):
                if self._accept(case, inputs):
                    return True
        return False

    def _inputs_of(self, case: TestCase) -> Iterator[Arrays]:
        """Yield inputs for ``case``: leading parts of the current inputs if they fit, then generated ones."""
        wanted = [case.shapes[name] for name in case.descriptor.inputs]
        found = list(zip(self.best.inputs, wanted, strict=True))
        if all(len(shape) == one.ndim for one, shape in found):
            yield tuple(one[tuple(map(slice, shape))].copy() for one, shape in found)
        try:
            yield generate(case)[0]
        except CaseFailed:
            return

    def _simpler_values(self, place: int) -> None:
        """Set elements of one input to 0 or 1, in smaller and smaller pieces; then round them to integers."""
        descriptor = self.best.case.descriptor
        domain = descriptor.domain.get(descriptor.inputs[place], ANY)
        if domain.distinct or domain.simplex or domain.sorted:
            return
        simple = 1 if domain.nonzero or domain.positive or (domain.low or 0) > 0 else 0
        size = piece = self.best.inputs[place].size
        while piece:
            for start in range(0, size, piece):
                flat = self.best.inputs[place].flatten()
                part = flat[start : start + piece]
                if not np.all(part == flat.dtype.type(simple)):
                    flat[start : start + piece] = simple
                    self._try_values(place, flat)
            piece //= 2
        values = self.best.inputs[place]
        if kind_of(values.dtype) == "float" and domain.indices_of is None:
            for index in range(size):
                flat = self.best.inputs[place].flatten()
                value = float(flat[index])
                if np.isfinite(value) and value != np.rint(value):
                    flat[index] = np.rint(value) or simple
                    self._try_values(place, flat)

    def _try_values(self, place: int, flat: Array) -> None:
        inputs = list(self.best.inputs)
        inputs[place] = flat.reshape(inputs[place].shape)
        self._accept(self.best.case, tuple(inputs))

    def _accept(self, case: TestCase, inputs: Arrays) -> bool:
        """Whether a candidate fails like the original; if so, it becomes the best one."""
        if not self.attempts.left:
            return False
        try:
            expect(case, inputs)  # if the reference fails too, the backend is not to blame
        except CaseFailed:
            return False
        result = self.attempts.run(CaseTask(case, inputs=inputs))
        if result.status is not self.best.result.status:
            return False
        self.best = Shrunk(case, inputs, result)
        return True


def _smaller(case: TestCase) -> Iterator[dict[str, Shape]]:
    """Yield shapes to try: one dimension less, then smaller sizes, everywhere or in a single place."""
    shapes: Mapping[str, Shape] = case.shapes
    if any(shapes.values()):
        yield {name: shape[1:] for name, shape in shapes.items()}
    sizes = sorted({size for shape in shapes.values() for size in shape if size > 1}, reverse=True)
    for size in sizes:
        for less in smaller_sizes(size):
            yield {
                name: tuple(less if one == size else one for one in shape) for name, shape in shapes.items()
            }
    for name, shape in shapes.items():
        for axis, size in enumerate(shape):
            for less in smaller_sizes(size):
                yield {**shapes, name: (*shape[:axis], less, *shape[axis + 1 :])}


def smaller_sizes(size: int) -> list[int]:
    """Return sizes to try instead of ``size``, the smallest first."""
    return [one for one in dict.fromkeys((1, 2, size // 2, size - 1)) if 0 < one < size]
