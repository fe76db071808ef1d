"""The program of a batch of calls: the programs of its calls, one after the other, in one StableHLO module.

Each call's program becomes a function, which the compiler inlines and fuses with the code around it. Results
that nobody holds are not results of the region, so they need not be stored in memory.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from .. import dtypes, hlo
from ..config import config
from ..dtypes import DType
from ..hlo import Value
from ..runtime.mappings import give_up_when_scarce
from . import engine
from .plans import Plan

if TYPE_CHECKING:
    from .lazy import Batch


class Region:
    """One program for all batches of the same calls that keep the same results and donate the same inputs."""

    def __init__(self, batch: Batch, live: tuple[int, ...], donated: tuple[int, ...]) -> None:
        self._steps = list(batch.steps())
        self._live = live
        self._checked = batch.checked
        self._packed = [
            hlo.Argument((len(values), *shape), dtype, name)
            for values, shape, dtype, name in _packed(batch)
            if values
        ]
        self._program = engine.Program("region", [*self._inputs(), *self._packed], self._body, donated)

    def __call__(self, batch: Batch, execution: engine.Execution) -> list[Any] | None:
        """Run the batch and return its live results, or None if a check fails; all inputs are intact then.

        ``execution`` keeps the results if inputs are donated.
        """
        arrays = [*batch.inputs, *(engine.vector(v, dtype) for v, _, dtype, _ in _packed(batch) if v)]
        results = self._program.run(arrays, *([execution] if self._program.donated else []))
        if self._checked and not engine.value_of(results.pop()):
            return None
        return results

    def _inputs(self) -> list[hlo.Argument]:
        """Return the type of each input, taken from the arguments of a step that reads it."""
        found: dict[int, hlo.Argument] = {}
        for plan, codes, _ in self._steps:
            given = _program(plan).arguments
            for position, code in enumerate(codes):
                if code is not None and code < 0:
                    taken = given[_place(plan, position)]
                    found[~code] = hlo.Argument(taken.shape, taken.dtype, f"input_{~code}")
        return [found[number] for number in range(len(found))]

    def _body(self, values: list[Value]) -> list[Value]:
        count = len(values) - len(self._packed)
        inputs = values[:count]
        packed = {one.name: _parts(value) for one, value in zip(self._packed, values[count:], strict=True)}
        results: dict[int, Value] = {}
        answers: list[Value] = []
        for plan, codes, first in self._steps:
            program = _program(plan)
            operands = arguments(
                plan,
                [self._operand(program, i, code, inputs, results) for i, code in enumerate(codes)],
                lambda dtype: next(packed["floats" if dtype.is_floating else "ints"]),
                lambda: next(packed["seeds"]),
            )
            made = hlo.call_program(id(plan), program.module, operands)
            results.update(enumerate(made, first))
            if plan.checks:
                answers += made[-len(plan.checks) :]
        checks = [reduce(lambda one, other: one & other, answers)] if answers else []
        return [*(results[number] for number in self._live), *checks]

    @staticmethod
    def _operand(
        program: engine.Program,
        position: int,
        code: int | None,
        inputs: Sequence[Value],
        results: dict[int, Value],
    ) -> Value:
        if code is None:
            wanted = program.arguments[position]
            return hlo.full(wanted.shape, 0, wanted.dtype)
        return results[code] if code >= 0 else inputs[~code]


def _program(plan: Plan) -> engine.Program:
    assert plan.program is not None
    return plan.program


def _place(plan: Plan, position: int) -> int:
    """Return the position, among a program's arguments, of the array at ``position`` in the step's codes."""
    if position < len(plan.reads):
        return position
    hosts = len(_program(plan).arguments) - len(plan.hosts) - plan.seeded
    return hosts + position - len(plan.reads)


def arguments(
    plan: Plan, arrays: list[Any], number: Callable[[DType], Any], seed: Callable[[], Any]
) -> list[Any]:
    """Return the arguments of a plan's program, in order.

    ``arrays`` are those of the boxes that the plan reads, followed by those of the 0-d CPU tensors.
    """
    reads, hosts = len(plan.reads), len(plan.hosts)
    given = _program(plan).arguments
    numbers = [number(one.dtype) for one in given[reads : len(given) - hosts - plan.seeded]]
    return [*arrays[:reads], *numbers, *arrays[reads:], *([seed()] if plan.seeded else [])]


def _packed(batch: Batch) -> list[tuple[list[Any], tuple[int, ...], DType, str]]:
    """Return the batch's numbers and seeds, packed by kind: many small arguments would cost too much time."""
    return [
        (batch.floats, (), dtypes.FLOAT64, "floats"),
        (batch.ints, (), dtypes.INT64, "ints"),
        (batch.seeds, (2,), dtypes.UINT64, "seeds"),
    ]


def _parts(packed: Value) -> Iterator[Value]:
    """Yield the rows of an array."""
    for row in range(packed.shape[0]):
        yield hlo.reshape(hlo.slice_axis(packed, 0, row, row + 1), packed.shape[1:])


class _Kept:
    """The most recently used regions; at most ``config.device_regions`` are kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[Any, Region] = OrderedDict()

    def get(self, key: Any) -> Region | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: Any, region: Region) -> None:
        with self._lock:
            self._found[key] = region
            while len(self._found) > max(1, config.device_regions):
                self._found.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._found.clear()

    def __len__(self) -> int:
        return len(self._found)


_kept = _Kept()
give_up_when_scarce(_kept.clear)


def known(batch: Batch, live: tuple[int, ...], donated: tuple[int, ...]) -> Region | None:
    """Return the cached region of a batch, or None.

    ``live`` are the numbers of the results that are needed, ``donated`` those of the inputs that are not
    needed afterwards.
    """
    return _kept.get((tuple(batch.calls), live, donated))


def made(batch: Batch, live: tuple[int, ...], donated: tuple[int, ...]) -> Region:
    """Make and cache the region of a batch; the arguments are those of :func:`known`."""
    region = Region(batch, live, donated)
    _kept.keep((tuple(batch.calls), live, donated), region)
    return region


def count() -> int:
    """Return how many regions are cached."""
    return len(_kept)
