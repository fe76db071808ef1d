"""Fused eager: calls accumulate in a batch, which runs as one program when values are needed.

A box that a pending call writes holds a :class:`~.storage.Pending` in place of an array. Asking a box for its
array runs the batch first, so code that reads values need not know about batches. The program of a batch is
made in :mod:`.regions`.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ContextDecorator, suppress
from pathlib import Path
from typing import Any

import torch

from ..config import config
from ..errors import EngineError
from ..torch_internals.private_device import run_backward_here
from . import engine, random, regions
from .calls import Operands
from .plans import Plan
from .storage import Box, Pending, new_allocation, pending_result, zeros


class _Mode(threading.local):
    """The state of one thread.

    ``wanted`` is what its innermost :class:`lazy` context asks for, None outside any. ``batch`` is its last
    batch. ``open`` is this batch too, if a call was added to it since the innermost context was entered.
    """

    def __init__(self) -> None:
        self.wanted: bool | None = None
        self.before: list[bool | None] = []
        self.batch: Batch | None = None
        self.open: Batch | None = None


mode = _Mode()
_open: weakref.WeakSet[Batch] = weakref.WeakSet()
_open_lock = threading.Lock()
_LIBRARIES = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)


def wanted() -> bool:
    """Whether the calls of this thread accumulate in a batch."""
    found = mode.wanted
    return config.device_lazy if found is None else found


def may_compile_later() -> bool:
    """Whether a call's own program need not be compiled before it has to run outside a batch."""
    return wanted() and engine.is_pjrt()


class lazy(ContextDecorator):
    """``with torch.pjrt.lazy():``, or a decorator: calls accumulate and run as one program.

    They run when values are needed, at the end of the outermost context, and when
    ``config.device_lazy_calls`` of them have accumulated. ``lazy(False)`` turns this off for a block of code.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled

    def _recreate_cm(self) -> lazy:
        return lazy(self._enabled)

    def __enter__(self) -> None:
        mode.before.append(mode.wanted)
        mode.wanted, mode.open = self._enabled, None

    def __exit__(self, *_: object) -> None:
        mode.wanted, mode.open = mode.before.pop(), None
        if not wanted():
            run_own()


def run_own() -> None:
    """Run the pending calls of this thread."""
    batch = mode.batch
    if batch is not None:
        batch.run()


def run_after_step(*_: Any) -> None:
    """Run pending calls after an optimizer's step, so that each round of a training loop is one batch."""
    if wanted():
        run_own()


def run_all() -> None:
    """Run the pending calls of all threads."""
    with _open_lock:
        batches = list(_open)
    for batch in batches:
        batch.run()


def _run_before_fork() -> None:
    """Run pending calls before a fork, since the child cannot run programs.

    If they fail, reading their values raises later.
    """
    with suppress(Exception):
        run_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_run_before_fork)


def run_or_add(plan: Plan, call: Operands) -> Any:
    """Make the call now, or add it to the batch: then the result has its sizes now and its values later."""
    run_backward_here()
    wanted = mode.wanted
    if wanted is None:
        wanted = config.device_lazy
    if not wanted or plan.program is None or plan.moved:  # resizing a written argument is too rare to batch
        return plan(call)
    if config.device_memory_limit:
        plan.require_memory(call)
    seeds = [random.draw(call.generator)] if plan.seeded else []
    while True:
        batch = mode.batch
        if batch is None or batch.closed:
            batch = mode.batch = Batch()
            with _open_lock:
                _open.add(batch)
        made = batch.add(plan, call, seeds)
        if made is not None:
            break
        for place in plan.reads:
            array = call.boxes[place].array
            if type(array) is Pending and array.batch is not batch:
                call.boxes[place].ready()
    mode.open, batch.in_context = batch, mode.wanted is not None
    result = plan.answer(call.tensors, made)
    if batch.count >= batch.limit:
        batch.run()
    return result


class _Foreign(Exception):
    """Raised if a call reads a box whose array is pending in another batch."""


Overwritten = tuple[Any, Any, Any]
"""A weak reference to a box, what it held (a code, an array, or None), and the dtype it had then."""
Step = tuple[Plan, tuple[Any, ...], int]
"""A call as its plan, the codes of its arrays, and the number of its first result."""


class Batch:
    """Calls that have not run yet.

    A *code* says where the array of an argument comes from: a number >= 0 is a result of an earlier step, a
    negative number is the input ``~code``, and None stands for zeros. ``calls`` holds, for each of the
    ``count`` calls, its plan followed by the codes of its arrays: one flat list, since a list per call would
    take more time. Numbers and seeds are kept in the order in which programs take them.

    Only the thread that made a batch adds calls to it, and any thread may run it: the first one to do so
    closes it. A call is added in one piece of code during which no other Python code runs, neither of another
    thread nor of a finalizer or a signal handler. Whatever the call takes from the batch is collected before.
    The call is added only if the batch is still open then and has no calls that came in the meantime.

    ``in_context`` says whether a :class:`lazy` context asked for the last call, and not the configuration.
    """

    def __init__(self) -> None:
        self.closed = False
        self.in_context = False
        self.limit = config.device_lazy_calls
        self.calls: list[Any] = []
        self.count = 0
        self.inputs: list[Any] = []
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.seeds: list[Any] = []
        self.checked = False
        self._lock = threading.RLock()
        self.codes: dict[int, int] = {}  # codes of inputs, by the id of the array
        self.promises: list[Pending | None] = []  # results, by number; None for those of checks
        self._overwritten: dict[int, list[Overwritten]] = {}  # by the position of the call that writes
        self._replaced: set[int] = set()  # inputs that a box has held and no longer holds
        self._lines: dict[int, str] = {}

    def add(self, plan: Plan, call: Operands, seeds: list[Any]) -> list[torch.Tensor] | None:
        """Add the call and return its new tensors.

        Returns None, and nothing has changed, if the batch was closed, if it took other calls in the meantime
        (of finalizers or signal handlers), or if the call reads values that are pending in another batch.

        :mod:`.looks` makes shorter code for calls that need less.
        """
        count = self.count
        boxes = call.boxes
        calls: list[Any] = [plan]
        inputs: list[Any] = []
        codes: dict[int, int] = {}
        try:
            for place in plan.reads:
                array = boxes[place].array
                own = type(array) is Pending and array.batch is self
                calls.append(array.number if own else self._code(boxes[place], inputs, codes))
        except _Foreign:
            return None
        for host in plan.hosts:
            calls.append(~(len(self.inputs) + len(inputs)))
            inputs.append(engine.from_host(call.tensors[host].clone()))
        number = len(self.promises)
        promises: list[Pending | None] = []
        if plan.writes:
            written = [boxes[place] for place, _ in plan.writes]
            overwritten = [self._held(box, codes) for box in written]
            replaced = {~held for _, held, _ in overwritten if type(held) is int and held < 0}
            for box in written:
                promises.append(pending_result(self, number, 0 if box.allocation else box.nbytes))
                number += 1
            names = ["array"] * len(written) + ["dtype"] * len(written)
            writing = map(setattr, written * 2, names, [*promises, *(element for _, element in plan.writes)])
        made = []
        for one in plan.new:
            promise = pending_result(self, number, 0 if config.device_memory_limit else one.nbytes)
            number += 1
            promises.append(promise)
            made.append(one.holding(promise))
        floats: Sequence[Any] = ()
        ints: Sequence[Any] = ()
        if call.numbers:
            floats = [value for value, dtype in call.numbers if dtype.is_floating]
            ints = [value for value, dtype in call.numbers if not dtype.is_floating]
        if plan.checks:
            promises += [None] * len(plan.checks)
            line = _line()
        # Python switches threads, and runs finalizers and signal handlers, at calls and in loops. There are
        # none of these from here until the batch has all of the call.
        if self.closed or self.count != count:
            return None
        self.calls += calls
        self.inputs += inputs
        self.codes |= codes
        self.promises += promises
        self.floats += floats
        self.ints += ints
        self.seeds += seeds
        if plan.checks:
            self.checked = True
            self._lines[count] = line
        self.count += 1
        if plan.writes:
            self._overwritten[count] = overwritten
            self._replaced |= replaced
            any(writing)  # a loop in C
        return made

    def _code(self, box: Box, inputs: list[Any], codes: dict[int, int]) -> int | None:
        """Return the code of a box's array that no call of this batch makes: an input, or zeros.

        ``inputs`` and ``codes`` are those of a call that is not yet part of the batch.
        """
        array = box.array
        if type(array) is Pending:
            if array.batch is not None:
                raise _Foreign
            array = box.ready()
        elif array is None:
            return None
        code = self._known(array, codes)
        if code is None:
            code = codes[id(array)] = ~(len(self.inputs) + len(inputs))
            inputs.append(array)
        return code

    def _known(self, array: Any, codes: dict[int, int]) -> int | None:
        code = self.codes.get(id(array))
        return codes.get(id(array)) if code is None else code

    def _held(self, box: Box, codes: dict[int, int]) -> Overwritten:
        """Return what a call overwrites that is not yet part of the batch."""
        held = box.array
        if type(held) is Pending and held.batch is self:
            held = held.number
        else:
            code = self._known(held, codes)
            if code is not None:
                held = code
        return weakref.ref(box), held, box.dtype

    def steps(self) -> Iterator[Step]:
        """Yield the calls in order."""
        start = first = 0
        while start < len(self.calls):
            plan: Plan = self.calls[start]
            end = start + 1 + len(plan.reads) + len(plan.hosts)
            yield plan, tuple(self.calls[start + 1 : end]), first
            first += len(plan.writes) + len(plan.new) + len(plan.checks)
            start = end

    # Running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the calls, once. Raises the error of the first call that fails.

        In that case the calls before it have taken effect, and neither it nor the calls after it have.
        Tensors that these would have written keep their values, and tensors that they would have made have
        no values. If a signal handler raises, all calls have taken effect or none has.
        """
        with self._lock:
            if self.closed:
                return
            try:
                self.closed = True
                self._run()
            except BaseException as error:
                self._undo(0, {}, error)  # what is not resolved yet
                raise
            finally:
                self.calls, self.inputs, self.promises, self._overwritten = [], [], [], {}

    def _run(self) -> None:
        live = self._live()
        if not live and not self.checked:
            return
        execution = engine.Execution()
        try:
            region = regions.known(self, live, self._donated())
            if region is None:
                gc.collect()  # reference cycles left by tracing keep tensors alive that are no longer used
                live = self._live()
                region = regions.made(self, live, self._donated())
            results = region(self, execution)
            if results is not None:
                self._resolve(live, results)
        except EngineError:  # calls run one by one may give a clearer error, or need less memory
            results = None
        except BaseException:
            if execution.is_done:  # a signal handler has raised, and the donated inputs are gone
                self._resolve(live, execution.results)
            raise
        if results is None:
            self._one_by_one()

    def _resolve(self, live: tuple[int, ...], results: Sequence[Any]) -> None:
        for number, array in zip(live, results, strict=True):
            promise = self.promises[number]
            assert promise is not None
            promise.resolve(array)

    def _live(self) -> tuple[int, ...]:
        """Return the numbers of the results that something outside the batch still holds."""
        pending = self.promises
        held = [i for i, count in enumerate(map(sys.getrefcount, pending)) if count > _ALONE]
        return tuple(i for i in held if pending[i] is not None)

    def _donated(self) -> tuple[int, ...]:
        """Return the inputs that only the batch holds, so that results may reuse their memory.

        Returns none if the batch has checks, because a failed check needs the inputs again.
        """
        if self.checked or not engine.is_pjrt():
            return ()
        inputs = self.inputs
        return tuple(i for i in sorted(self._replaced) if sys.getrefcount(inputs[i]) <= _ALONE)

    def _one_by_one(self) -> None:
        """Run each call with its own program."""
        values: dict[int, Any] = {}
        floats, ints, seeds = iter(self.floats), iter(self.ints), iter(self.seeds)
        for position, (plan, codes, first) in enumerate(self.steps()):
            try:
                arrays = regions.arguments(
                    plan,
                    [self._value(code, plan, i, values) for i, code in enumerate(codes)],
                    lambda dtype: engine.number(next(floats if dtype.is_floating else ints), dtype),
                    lambda: engine.seed(next(seeds)),
                )
                results = plan.computed(arrays)
            except BaseException as error:
                if position in self._lines:
                    error.add_note(f"called {self._lines[position]}, and run later: see torch.pjrt.lazy")
                self._undo(position, values, error, first)
                raise
            values.update(enumerate(results, first))
        for number, promise in enumerate(self.promises):
            if promise is not None:
                promise.resolve(values[number])

    def _value(self, code: int | None, plan: Plan, position: int, values: dict[int, Any]) -> Any:
        if code is None:
            assert plan.program is not None
            specification = plan.program.arguments[position]
            return zeros(specification.shape[0], specification.dtype)
        return values[code] if code >= 0 else self.inputs[~code]

    def _undo(self, position: int, values: dict[int, Any], error: BaseException, first: int = 0) -> None:
        """Resolve the results of the steps before ``position``, and undo the later steps, if not done yet.

        ``first`` is the number of the first result of the step at ``position``. Boxes that the later steps
        would have written hold again what they held before.
        """
        before: dict[Box, tuple[Any, Any]] = {}
        for step in sorted((step for step in self._overwritten if step >= position), reverse=True):
            for reference, held, dtype in self._overwritten[step]:
                box = reference()
                if box is not None:
                    before[box] = held, dtype
        for box, (held, dtype) in before.items():
            if type(box.array) is not Pending or box.array.batch is not self:
                continue
            if type(held) is int:
                # A call that was left out has no results. The box gets the Pending of one back, which raises.
                held = values.get(held, self.promises[held]) if held >= 0 else self.inputs[~held]
            if held is None or type(held) is Pending or not engine.is_gone(held):
                box.array, box.dtype = held, dtype
                if not box.allocation and type(held) is not Pending:
                    box.allocation = new_allocation(box.nbytes)
        for number, promise in enumerate(self.promises):
            if promise is not None and promise.batch is self:
                promise.resolve(values.get(number), None if number < first else error)


def _line() -> str:
    """Return the line of the user's code that is running: ``at FILE:LINE``."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back  # type: ignore[assignment]
    return "in PyTorch" if frame is None else f"at {frame.f_code.co_filename}:{frame.f_lineno}"


_ALONE = next(map(sys.getrefcount, [object()]))
"""The reference count that Python reports for an object that only one list holds."""
