"""Looks: recognize a call that is like one made before, which takes less time than making its key.

This code runs in each call, so it is made for the kinds of the call's arguments, without loops. For a call
that makes one tensor and writes none, it also adds the call to a batch, as :meth:`.lazy.Batch.add` would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import torch

from ..config import config
from ..torch_internals.device_tensors import alike
from . import lazy
from .calls import END_OF_INTEGERS, KINDS_OF_NUMBERS, PLAIN, Call, Operands
from .drafting import layout_of
from .plans import Plan, first_new
from .storage import Box, Pending

_COMPARED = PLAIN | {bool}
UNLIKE = object()
"""What a look answers for a call that looks different."""
_SHARED = {
    "Box": Box,
    "config": config,
    "default_dtype": torch.get_default_dtype,
    "END": END_OF_INTEGERS,
    "mode": lazy.mode,
    "Operands": Operands,
    "Pending": Pending,
    "run_or_add": lazy.run_or_add,
    "storage_of": torch.Tensor.untyped_storage,
    "UNLIKE": UNLIKE,
}
"""The names of what all looks use."""


class Look:
    """How the arguments of a call looked, and what makes all calls that look so.

    ``call(args)`` returns the result of a call that looks so, and :data:`UNLIKE` for any other call, which it
    does not make. ``missed`` counts the other calls.
    """

    __slots__ = ("call", "missed")

    def __init__(self, call: Callable[[tuple[Any, ...]], Any]) -> None:
        self.call = call
        self.missed = 0


def look_of(call: Call, args: Sequence[Any], plan: Plan) -> Look | None:
    """Return the look of a call, or None if it has arguments that a look does not compare.

    A look needs a tensor as the first argument. All its tensors are on the device, each with a storage of its
    own, and the other arguments are numbers, plain values, or lists of integers.
    """
    if not call.tensors or args[0] is not call.tensors[0]:
        return None
    if len(call.boxes) != len(call.tensors) or call.generator is not None:
        return None
    names: dict[str, Any] = {}
    boxes = iter(call.boxes)
    kinds = []
    for place, value in enumerate(args):
        kind = type(value)
        names[f"kind_{place}"], names[f"value_{place}"] = kind, value
        if kind in (torch.Tensor, torch.nn.Parameter):
            box = next(boxes)
            names[f"value_{place}"] = value.storage_offset()
            names[f"element_{place}"], names[f"nbytes_{place}"] = box.dtype, box.nbytes
            kinds.append("whole" if _fills(value, box) else "part")
        elif place in call.names and call.is_number(value):
            names[f"element_{place}"] = KINDS_OF_NUMBERS[kind]
            kinds.append(kind.__name__)
        elif kind in _COMPARED:
            kinds.append("value")
        elif kind is list and all(type(one) is int for one in value):
            names[f"value_{place}"] = list(value)
            kinds.append("value")
        else:
            return None
    names |= {"alike": alike(call.tensors), "default": torch.get_default_dtype(), "plan": plan}
    if names["alike"] is None:
        return None
    reads = None
    if _only_makes_one(plan):
        (new,) = plan.new
        reads = plan.reads
        names["read"], names["source"] = new.maker
        names["element"], names["nbytes"] = new.layout.dtype, new.nbytes
    names |= _SHARED
    # With floating-point tensors alone, PyTorch's default dtype decides nothing.
    by_default = not all(one.is_floating_point() for one in call.tensors)
    return Look(_code(tuple(kinds), by_default, reads, tuple(names))(**names))


def _only_makes_one(plan: Plan) -> bool:
    """Whether all that the plan's calls do is to make one tensor from other tensors and numbers."""
    other = plan.hosts or plan.seeded or plan.writes or plan.moved or plan.checks
    return plan.program is not None and plan.answer is first_new and len(plan.new) == 1 and not other


def _fills(tensor: torch.Tensor, box: Box) -> bool:
    """Whether a tensor of this size can only begin at the start of such a box, where it needs all bytes."""
    return not tensor.storage_offset() and layout_of(tensor).end * tensor.dtype.itemsize == box.nbytes > 0


@cache
def _code(
    kinds: tuple[str, ...], by_default: bool, reads: tuple[int, ...] | None, names: tuple[str, ...]
) -> Callable[..., Callable[[tuple[Any, ...]], Any]]:
    """Return a function that makes the ``call`` of a look from what :func:`look_of` puts under ``names``.

    ``by_default`` says whether the plan depends on PyTorch's default dtype.
    ``reads`` are the tensors that the program takes, in order, if the code adds calls to a batch.
    """
    # Variables of an outer function are faster than globals, which Python caches for one function only.
    lines = [f"def make({', '.join(names)}):", "    def call(args):"]
    tensors = [place for place, kind in enumerate(kinds) if kind in ("whole", "part")]
    lines += (f"        {line}" for line in _comparison(kinds, by_default, tensors))
    if reads is not None:
        lines += (f"        {line}" for line in _addition(kinds, [tensors[one] for one in reads]))
    lines += (f"        {line}" for line in _rest(kinds, tensors))
    space: dict[str, Any] = {}
    exec("\n".join([*lines, "    return call"]), space)  # all of the text is made here
    made: Callable[..., Callable[[tuple[Any, ...]], Any]] = space["make"]
    return made


def _tuple(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


def _comparison(kinds: tuple[str, ...], by_default: bool, tensors: list[int]) -> Iterator[str]:
    """Yield the lines that return ``UNLIKE`` if the arguments look different."""
    given = _tuple(f"given_{place}" for place in tensors)
    yield f"if len(args) != {len(kinds)}{' or default_dtype() is not default' if by_default else ''}:"
    yield "    return UNLIKE"
    yield f"{_tuple(f'given_{place}' for place in range(len(kinds)))} = args"
    yield f"if not alike{given}:"
    yield "    return UNLIKE"
    yield "try:"
    for place in tensors:
        yield f"    box_{place} = storage_of(given_{place}).box"
    yield "except AttributeError:  # PyTorch itself made the storage"
    yield "    return UNLIKE"
    yield f"if {' or '.join(_differences(kinds, tensors))}:"
    yield "    return UNLIKE"


def _addition(kinds: tuple[str, ...], reads: list[int]) -> Iterator[str]:
    """Yield the lines that add the call to the open batch and return the new tensor.

    If no batch is open, or if the batch lacks one of the arrays, the lines after them make the call.
    """
    numbers = {
        name: _tuple(f"given_{place}" for place, kind in enumerate(kinds) if kind == which)
        for name, which in (("floats", "float"), ("ints", "int"))
        if which in kinds
    }
    yield "batch = mode.open"
    wanted = "(batch.in_context or config.device_lazy)"
    yield f"if batch is not None and {wanted} and not config.device_memory_limit:"
    yield "    count, codes, calls, promises = batch.count, batch.codes, batch.calls, batch.promises"
    for place in reads:
        yield f"    array = box_{place}.array"
        yield "    if type(array) is Pending and array.batch is batch:"
        yield f"        code_{place} = array.number"
        yield "    else:"
        yield f"        code_{place} = codes.get(id(array))"
    yield f"    if {' and '.join(f'code_{place} is not None' for place in reads) or 'True'}:"
    yield "        promise = Pending()"
    yield "        promise.batch = batch"
    yield "        promise.number = len(promises)"
    yield "        promise.uncounted = nbytes"
    yield "        made = read(source())"
    yield "        storage_of(made).box = box = Box()"
    yield "        box.array = promise"
    yield "        box.dtype = element"
    yield "        box.nbytes = nbytes"
    yield "        box.allocation = None"
    yield f"        added, promised = {_tuple(['plan', *(f'code_{place}' for place in reads)])}, (promise,)"
    for name, given in numbers.items():
        yield f"        {name} = {given}"
    yield "        if not batch.closed and batch.count == count:  # no call from here on, see Batch.add"
    yield "            calls += added"
    yield "            promises += promised"
    for name in numbers:
        yield f"            batch.{name} += {name}"
    yield "            batch.count = count = count + 1"
    yield "            if count >= batch.limit:"
    yield "                batch.run()"
    yield "            return made"


def _rest(kinds: tuple[str, ...], tensors: list[int]) -> Iterator[str]:
    """Yield the lines that make the call in the general way."""
    numbers = (place for place, kind in enumerate(kinds) if kind in ("int", "float"))
    given = _tuple(f"given_{place}" for place in tensors)
    yield "operands = Operands()"
    yield f"operands.tensors = {given if len(tensors) < len(kinds) else 'args'}"
    yield f"operands.boxes = {_tuple(f'box_{place}' for place in tensors)}"
    yield f"operands.numbers = {_tuple(f'(given_{place}, element_{place})' for place in numbers)}"
    yield "operands.generator = None"
    yield "return run_or_add(plan, operands)"


def _differences(kinds: tuple[str, ...], tensors: list[int]) -> Iterator[str]:
    """Yield the conditions under which arguments look different, without what ``alike`` compares."""
    for one, other in combinations(tensors, 2):
        yield f"box_{one} is box_{other}"
    for place, kind in enumerate(kinds):
        if place in tensors:
            yield f"box_{place}.dtype is not element_{place} or box_{place}.nbytes != nbytes_{place}"
        else:
            yield f"type(given_{place}) is not kind_{place}"
        if kind == "part":
            yield f"given_{place}.storage_offset() != value_{place}"
        elif kind == "value":
            yield f"given_{place} != value_{place}"
        elif kind == "int":
            yield f"not -END <= given_{place} < END"
