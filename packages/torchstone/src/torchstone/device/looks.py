"""Looks: recognize a call that is like one made before, which takes less time than making its key.

The comparison runs in each call, so its code is made for the kinds of the call's arguments, without loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations
from types import CodeType, FunctionType
from typing import Any

import torch

from ..torch_internals.device_tensors import alike
from .calls import END_OF_INTEGERS, KINDS_OF_NUMBERS, PLAIN, Call, Operands
from .drafting import layout_of
from .plans import Plan
from .storage import Box

_COMPARED = PLAIN | {bool}
_SHARED = {
    "Operands": Operands,
    "default_dtype": torch.get_default_dtype,
    "end": END_OF_INTEGERS,
    "type": type,
}
"""The names, in the code of a comparison, of what all comparisons use."""


class Look:
    """How the arguments of a call looked, and the plan of all calls that look so.

    ``operands(args)`` returns the operands of a call that looks so, and None for any other call. ``missed``
    counts the other calls.
    """

    __slots__ = ("missed", "operands", "plan")

    def __init__(self, plan: Plan, operands: Callable[[tuple[Any, ...]], Operands | None]) -> None:
        self.plan = plan
        self.operands = operands
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
    names["default"], names["alike"] = torch.get_default_dtype(), alike(call.tensors)
    if names["alike"] is None:
        return None
    return Look(plan, FunctionType(_code(tuple(kinds)), names | _SHARED))


def _fills(tensor: torch.Tensor, box: Box) -> bool:
    """Whether a tensor of this size can only begin at the start of such a box, where it needs all bytes."""
    return not tensor.storage_offset() and layout_of(tensor).end * tensor.dtype.itemsize == box.nbytes > 0


@cache
def _code(kinds: tuple[str, ...]) -> CodeType:
    """Return the code of a function that compares arguments of these kinds, with :func:`look_of`'s names."""
    space: dict[str, Any] = {}
    exec("\n".join(_lines(kinds)), space)  # all of the text is made here
    found: FunctionType = space["operands"]
    return found.__code__


def _lines(kinds: tuple[str, ...]) -> Iterator[str]:
    tensors = [place for place, kind in enumerate(kinds) if kind in ("whole", "part")]
    numbers = [place for place, kind in enumerate(kinds) if kind in ("int", "float")]
    given = "".join(f"given_{place}, " for place in tensors)
    yield "def operands(args):"
    yield f"    if len(args) != {len(kinds)} or default_dtype() is not default:"
    yield "        return None"
    yield f"    {''.join(f'given_{place}, ' for place in range(len(kinds)))} = args"
    yield f"    if not alike({given}):"
    yield "        return None"
    yield "    try:"
    for place in tensors:
        yield f"        box_{place} = given_{place}.untyped_storage().box"
    yield "    except AttributeError:  # PyTorch itself made the storage"
    yield "        return None"
    yield f"    if {' or '.join(_differences(kinds, tensors))}:"
    yield "        return None"
    yield "    found = Operands()"
    yield f"    found.tensors = {f'({given})' if len(tensors) < len(kinds) else 'args'}"
    yield f"    found.boxes = ({''.join(f'box_{place}, ' for place in tensors)})"
    yield f"    found.numbers = ({''.join(f'(given_{place}, element_{place}), ' for place in numbers)})"
    yield "    found.generator = None"
    yield "    return found"


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
            yield f"not -end <= given_{place} < end"
