"""Plans: a plan runs all calls that have the same key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..compiler.checks import Check
from ..config import config
from ..dtypes import DType
from ..errors import EngineError, raise_failed_checks
from ..torch_internals.device_tensors import maker, put_on
from . import engine, random
from .calls import Operands
from .layout import Layout
from .storage import box_of, device, memory, new_storage, tensor_maker


class New:
    """A result that has a storage of its own."""

    __slots__ = ("holding", "layout", "maker", "nbytes")

    def __init__(self, layout: Layout, dtype: torch.dtype, nbytes: int) -> None:
        self.layout = layout
        self.nbytes = nbytes
        self.maker = maker(device(), dtype, layout.size, layout.stride, nbytes)
        self.holding = tensor_maker(self.maker, layout.dtype, nbytes)


@dataclass(frozen=True, slots=True)
class Moved:
    """A written argument whose shape changes, such as an ``out=`` tensor that is resized."""

    tensor: int
    nbytes: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Plan:
    """A program, and how its arguments and results map to those of a call.

    The program's arguments are the arrays of the boxes in ``reads``, the numbers, the 0-d CPU tensors, and
    the seed. Its results are one array per box in ``writes``, those in ``new``, and one per check. ``answer``
    makes the operator's return value from the call's tensors and the new ones.
    """

    program: engine.Program | None
    reads: tuple[int, ...]
    hosts: tuple[int, ...]
    seeded: bool
    writes: tuple[tuple[int, DType], ...]
    new: tuple[New, ...]
    answer: Callable[[Sequence[torch.Tensor], list[torch.Tensor]], Any]
    moved: tuple[Moved, ...] = ()
    checks: tuple[Check, ...] = ()

    def __call__(self, call: Operands) -> Any:
        if self.program is None:
            return self.answer(call.tensors, [])
        if config.device_memory_limit:
            self.require_memory(call)
        boxes = call.boxes
        arrays = [boxes[place].ready() for place in self.reads]
        for value, dtype in call.numbers:
            arrays.append(engine.number(value, dtype))
        for host in self.hosts:
            arrays.append(engine.from_host(call.tensors[host].clone()))
        if self.seeded:
            arrays.append(engine.seed(random.draw(call.generator)))
        results = self.computed(arrays)
        if self.moved:
            self._move(call)
        position = 0
        for place, element in self.writes:
            boxes[place].replace(results[position], element)
            position += 1
        made = []
        for one in self.new:
            made.append(one.holding(results[position]))
            position += 1
        return self.answer(call.tensors, made)

    def computed(self, arrays: list[Any]) -> list[Any]:
        """Run the program and return its results without those of the checks. Raises if a check fails."""
        assert self.program is not None
        try:
            results = self.program.run(arrays)
        except EngineError as error:
            raise memory.exceeded(error) from error
        return self._checked(results) if self.checks else results

    def require_memory(self, call: Operands) -> None:
        """Raise ``torch.OutOfMemoryError``, before anything is computed, if the results would not fit."""
        grown = sum(max(0, one.nbytes - box_of(call.tensors[one.tensor]).nbytes) for one in self.moved)
        memory.require(grown + sum(one.nbytes for one in self.new))

    def _checked(self, results: list[Any]) -> list[Any]:
        """Return the results without those of the checks. Raise if a check fails; nothing is written then."""
        count = len(results) - len(self.checks)
        answers = [bool(engine.value_of(one)) for one in results[count:]]
        if not all(answers):
            raise_failed_checks(
                ((check.kind, check.text, holds) for check, holds in zip(self.checks, answers, strict=True)),
                by_setting=False,
            )
        return results[:count]

    def _move(self, call: Operands) -> None:
        for one in self.moved:
            tensor = call.tensors[one.tensor]
            box = box_of(tensor)
            storage = tensor.untyped_storage()
            box.grow(one.nbytes, keep=False)
            if storage.nbytes() < box.nbytes:
                storage = new_storage(box)
            put_on(tensor, storage, one.size, one.stride, tensor.storage_offset())


def first_new(_: Sequence[torch.Tensor], made: list[torch.Tensor]) -> torch.Tensor:
    """The ``answer`` of a plan whose result is its first new tensor."""
    return made[0]


def answer_of(template: Any) -> Callable[[Sequence[torch.Tensor], list[torch.Tensor]], Any]:
    """Return the function that makes an operator's result from the call's tensors and the new ones.

    ``template`` is the result's structure, with ``("argument", i)`` or ``("new", i)`` for each tensor and
    ``("value", value)`` for anything else.
    """
    match template:
        case ("new", 0):
            return first_new
        case ("argument", int(place)):
            return lambda given, _: given[place]
        case _:
            return lambda given, made: _filled(template, given, made)


def _filled(template: Any, given: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> Any:
    match template:
        case ("argument", int(place)):
            return given[place]
        case ("new", int(place)):
            return made[place]
        case ("value", value):
            return value
        case _:
            return [_filled(one, given, made) for one in template]
