"""Fused eager: calls accumulate in a batch and run as one program where somebody needs values.

A box that a pending call writes holds a :class:`~.storage.Pending` in place of an array. Whoever asks a box
for its array runs the batch first, so nothing that reads values has to know of batches. Not here: the
program of a batch (:mod:`.regions`).
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref
from contextlib import ContextDecorator, suppress
from pathlib import Path
from typing import Any

import torch

from ..config import config
from ..errors import EngineError
from . import engine, random, regions
from .calls import Call
from .plans import Plan
from .storage import Box, Pending, zeros


class _Mode(threading.local):
    """Of one thread: whether a context asks for batches (None: none does), and the batch that is open."""

    wanted: bool | None = None
    batch: Batch | None = None


_mode = _Mode()
_open: weakref.WeakSet[Batch] = weakref.WeakSet()
_open_lock = threading.Lock()
_LIBRARIES = (str(Path(torch.__file__).parent) + os.sep, str(Path(__file__).parents[1]) + os.sep)


def wanted() -> bool:
    """Whether calls of this thread accumulate."""
    found = _mode.wanted
    return config.device_lazy if found is None else found


def may_compile_later() -> bool:
    """Whether a call's own program can wait until somebody runs it by itself."""
    return wanted() and engine.is_pjrt()


class lazy(ContextDecorator):
    """``with torch.pjrt.lazy():``, or a decorator: calls accumulate and run as one program.

    They run where values are needed, at the end of the outermost context, and when they are many
    (``config.device_lazy_calls``). ``lazy(False)`` turns it off for a part.
    """

    def __init__(self, enabled: bool = True) -> None:
        self._enabled = enabled
        self._before: list[bool | None] = []

    def _recreate_cm(self) -> lazy:
        return lazy(self._enabled)

    def __enter__(self) -> None:
        self._before.append(_mode.wanted)
        _mode.wanted = self._enabled

    def __exit__(self, *_: object) -> None:
        _mode.wanted = self._before.pop()
        if not wanted():
            run_own()


def run_own() -> None:
    """Run what this thread has pending."""
    batch = _mode.batch
    if batch is not None:
        batch.run()


def run_after_step(*_: Any) -> None:
    """The end of an optimizer's step, so that each round of a training loop is the same batch."""
    if wanted():
        run_own()


def run_all() -> None:
    """Run what any thread has pending."""
    with _open_lock:
        batches = list(_open)
    for batch in batches:
        batch.run()


def _run_before_fork() -> None:
    """A child cannot run programs. An error waits for whoever reads the values."""
    with suppress(Exception):
        run_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_run_before_fork)


def run_or_add(plan: Plan, call: Call) -> Any:
    """Make the call, or let it wait for the next run: the result has its sizes now, and its values then."""
    wanted = _mode.wanted
    if wanted is None:
        wanted = config.device_lazy
    if not wanted or plan.program is None or plan.moved:  # a written argument that is resized is rare
        return plan(call)
    if config.device_memory_limit:
        plan.require_memory(call)
    while True:
        batch = _mode.batch
        if batch is None or batch.closed:
            batch = _mode.batch = Batch()
            with _open_lock:
                _open.add(batch)
        made = batch.add(plan, call)
        if made is not None:
            break
        for place in plan.reads:
            array = call.boxes[place].array
            if type(array) is Pending and array.batch is not batch:
                call.boxes[place].ready()
    result = plan.answer(call.tensors, made)
    if len(batch.steps) >= config.device_lazy_calls:
        batch.run()
    return result


class _Foreign(Exception):
    """A box holds what another batch has pending."""


Overwritten = tuple[Any, Any, Any]
"""A box (weakly), what it held (a code, an array, or None), and the dtype of that."""


class Batch:
    """Calls that have not run.

    A *code* says where the array of an argument comes from: a number from 0 is a result of an earlier step,
    a negative one (``~code``) an input, None stands for zeros. ``steps`` are the calls: plan, codes of
    its arrays, number of its first result, what it overwrites. Numbers and seeds are kept in the order in
    which programs take them. ``key`` is what the program of the batch depends on.

    One lock guards a batch while it grows and while it runs. Whoever holds one takes no other.
    """

    def __init__(self) -> None:
        self.closed = False
        self.steps: list[tuple[Plan, list[Any], int, list[Overwritten]]] = []
        self.inputs: list[Any] = []
        self.floats: list[float] = []
        self.ints: list[int] = []
        self.seeds: list[Any] = []
        self.key: list[Any] = []
        self.checked = False
        self._lock = threading.RLock()
        self._codes: dict[int, int] = {}  # of inputs, by identity
        self._pending: list[Pending | None] = []  # by number
        self._replaced: set[int] = set()  # inputs that some box has held and does not any more
        self._lines: dict[int, str] = {}

    def add(self, plan: Plan, call: Call) -> list[torch.Tensor] | None:
        """The call's new tensors; None where the batch is closed, or another has pending what it reads."""
        with self._lock:
            if self.closed:
                return None
            known = len(self.inputs)
            try:
                return self._add(plan, call)
            except BaseException as error:
                del self.inputs[known:]
                self._codes = {which: code for which, code in self._codes.items() if ~code < known}
                if isinstance(error, _Foreign):
                    return None
                raise

    def _add(self, plan: Plan, call: Call) -> list[torch.Tensor]:
        boxes, pending = call.boxes, self._pending
        codes: list[int | None] = []
        for place in plan.reads:
            array = boxes[place].array
            known = type(array) is Pending and array.batch is self
            codes.append(array.number if known else self._code(boxes[place]))
        for host in plan.hosts:
            codes.append(~len(self.inputs))
            self.inputs.append(engine.from_host(call.tensors[host].clone()))
        first = len(pending)
        number = first + len(plan.writes)
        new = []
        made = []
        for one in plan.new:
            promise = Pending(self, number)
            number += 1
            new.append(promise)
            made.append(one.holding(promise))
        # Nothing fails from here on.
        overwritten = []
        for place, element in plan.writes:
            box = boxes[place]
            overwritten.append(self._overwritten(box))
            promise = Pending(self, len(pending))
            pending.append(promise)
            box.replace(promise, element)
        pending += new
        if plan.checks:
            pending += [None] * len(plan.checks)
            self.checked = True
            self._lines[len(self.steps)] = _line()
        for value, dtype in call.numbers:
            numbers: list[Any] = self.floats if dtype.is_floating else self.ints
            numbers.append(value)
        if plan.seeded:
            self.seeds.append(random.draw(call.generator))
        self.steps.append((plan, codes, first, overwritten))
        self.key.append(id(plan))
        self.key += codes
        return made

    def _code(self, box: Box) -> int | None:
        """The code of what no call of this batch makes."""
        array = box.array
        if type(array) is Pending:
            if array.batch is not None:
                raise _Foreign
            array = box.ready()
        elif array is None:
            return None
        code = self._codes.get(id(array))
        if code is None:
            code = self._codes[id(array)] = ~len(self.inputs)
            self.inputs.append(array)
        return code

    def _overwritten(self, box: Box) -> Overwritten:
        held = box.array
        if type(held) is Pending and held.batch is self:
            held = held.number
        else:
            code = self._codes.get(id(held))
            if code is not None:
                held = code
                self._replaced.add(~code)
        return weakref.ref(box), held, box.dtype

    # Running ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run the calls, once. Raises what the first of them that fails would have raised.

        Then the calls before it have been made, and it and those behind it have not: tensors that these
        would have written keep what they held, and those that they would have made have no values.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
            try:
                self._run()
            finally:
                self.steps, self.inputs, self._pending = [], [], []

    def _run(self) -> None:
        pending = self._pending
        live = self._live()
        if not live and not self.checked:
            return
        try:
            region = regions.known(self, live, self._donated())
            if region is None:
                gc.collect()  # what tracing has left in cycles holds tensors that nobody else does
                live = self._live()
                region = regions.made(self, live, self._donated())
            results = region(self)
        except EngineError:  # one of the calls by itself may say more, or take less memory
            results = None
        except BaseException as error:
            self._undo(0, {}, error)
            raise
        if results is None:
            self._one_by_one()
            return
        for number, array in zip(live, results, strict=True):
            promise = pending[number]
            assert promise is not None
            promise.resolve(array)

    def _live(self) -> tuple[int, ...]:
        """Results that somebody holds."""
        pending = self._pending
        held = [i for i, count in enumerate(map(sys.getrefcount, pending)) if count > _ALONE]
        return tuple(i for i in held if pending[i] is not None)

    def _donated(self) -> tuple[int, ...]:
        """Inputs that nobody else holds, whose memory results may take. A failed check needs them again."""
        if self.checked or not engine.is_pjrt():
            return ()
        inputs = self.inputs
        return tuple(i for i in sorted(self._replaced) if sys.getrefcount(inputs[i]) <= _ALONE)

    def _one_by_one(self) -> None:
        """Make each call with a program of its own."""
        values: dict[int, Any] = {}
        floats, ints, seeds = iter(self.floats), iter(self.ints), iter(self.seeds)
        for position, (plan, codes, first, _) in enumerate(self.steps):
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
                self._undo(position, values, error)
                raise
            values.update(enumerate(results, first))
        for number, promise in enumerate(self._pending):
            if promise is not None:
                promise.resolve(values[number])

    def _value(self, code: int | None, plan: Plan, position: int, values: dict[int, Any]) -> Any:
        if code is None:
            assert plan.program is not None
            specification = plan.program.arguments[position]
            return zeros(specification.shape[0], specification.dtype)
        return values[code] if code >= 0 else self.inputs[~code]

    def _undo(self, position: int, values: dict[int, Any], error: BaseException) -> None:
        """Give values to what came before the step at ``position``; take back what came from there on."""
        before: dict[Box, tuple[Any, Any]] = {}
        for _, _, _, overwritten in reversed(self.steps[position:]):
            for reference, held, dtype in overwritten:
                box = reference()
                if box is not None:
                    before[box] = held, dtype
        for box, (held, dtype) in before.items():
            if type(box.array) is not Pending or box.array.batch is not self:
                continue
            if type(held) is int:
                # What a call that was left out would have made has no values, neither now nor before.
                held = values.get(held, self._pending[held]) if held >= 0 else self.inputs[~held]
            if held is None or type(held) is Pending or not engine.is_gone(held):
                box.array, box.dtype = held, dtype
        first = self.steps[position][2]
        for number, promise in enumerate(self._pending):
            if promise is not None:
                promise.resolve(values.get(number), None if number < first else error)


def _line() -> str:
    """Where the program that uses PyTorch is: ``at FILE:LINE``."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back  # type: ignore[assignment]
    return "in PyTorch" if frame is None else f"at {frame.f_code.co_filename}:{frame.f_lineno}"


_ALONE = next(map(sys.getrefcount, [object()]))
"""What Python counts for an object that only one list holds."""
