"""Looks: recognize a call that is like one made before, which takes less time than making its key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..dtypes import DType
from ..torch_internals.device_tensors import alike
from ..torch_internals.operators import OpOverload, schema_of
from .calls import END_OF_INTEGERS, KINDS_OF_NUMBERS, PLAIN, Call, Operands
from .plans import Plan

_TYPES = (torch.Tensor, torch.nn.Parameter)
_COMPARED = PLAIN | {bool}


class Look:
    """How the arguments of one call looked, and the plan of all calls that look so.

    ``missed`` counts calls that were compared with it and looked different.
    """

    __slots__ = (
        "_alike",
        "_boxes",
        "_count",
        "_default",
        "_numbers",
        "_others",
        "_tensors",
        "missed",
        "plan",
    )

    def __init__(
        self,
        plan: Plan,
        count: int,
        tensors: list[int],
        like: Callable[..., bool],
        boxes: list[tuple[int, DType, int]],
        numbers: list[tuple[int, type[float], DType]],
        others: list[tuple[int, type, Any]],
    ) -> None:
        self.plan = plan
        self.missed = 0
        self._count = count
        self._tensors = None if len(tensors) == count else tensors
        self._alike = like
        self._boxes = boxes
        self._numbers = numbers
        self._others = others
        self._default = torch.get_default_dtype()

    def operands(self, args: Sequence[Any]) -> Operands | None:
        """Return the operands of a call that looks so, and None for any other call."""
        if len(args) != self._count or torch.get_default_dtype() is not self._default:
            return None
        tensors = list(args) if self._tensors is None else [args[i] for i in self._tensors]
        if not self._alike(*tensors):
            return None
        boxes = []
        try:
            for tensor, (offset, dtype, nbytes) in zip(tensors, self._boxes):  # noqa: B905  # quicker
                box = tensor.untyped_storage().box
                if (
                    box.dtype is not dtype
                    or box.nbytes != nbytes
                    or tensor.storage_offset() != offset
                    or box in boxes
                ):
                    return None
                boxes.append(box)
        except AttributeError:  # PyTorch itself made the storage
            return None
        for place, kind, expected in self._others:
            value = args[place]
            if type(value) is not kind or value != expected:
                return None
        numbers: list[tuple[float, DType]] = []
        for place, kind, element in self._numbers:
            value = args[place]
            if type(value) is not kind or not (kind is float or -END_OF_INTEGERS <= value < END_OF_INTEGERS):
                return None
            numbers.append((value, element))
        found = Operands()
        found.tensors, found.boxes, found.numbers, found.generator = tensors, boxes, numbers, None
        return found


def look_of(overload: OpOverload, call: Call, args: Sequence[Any], plan: Plan) -> Look | None:
    """Return the look of a call, or None if it has arguments that a look does not compare.

    A look needs a tensor as the first argument. All its tensors are on the device, each with a storage of its
    own, and the other arguments are numbers, plain values, or lists of integers.
    """
    if not call.tensors or len(call.boxes) != len(call.tensors) or call.generator is not None:
        return None
    if str(schema_of(overload).arguments[0].type) != "Tensor":
        return None
    tensors: list[int] = []
    numbers: list[tuple[int, type[float], DType]] = []
    others: list[tuple[int, type, Any]] = []
    for place, value in enumerate(args):
        kind = type(value)
        if kind in _TYPES:
            tensors.append(place)
        elif place in call.names and call.is_number(value):
            numbers.append((place, kind, KINDS_OF_NUMBERS[kind]))
        elif kind in _COMPARED:
            others.append((place, kind, value))
        elif kind is list and all(type(one) is int for one in value):
            others.append((place, kind, list(value)))
        else:
            return None
    if len(tensors) != len(call.tensors):
        return None
    like = alike(call.tensors)
    if like is None:
        return None
    boxes = [
        (int(one.storage_offset()), box.dtype, box.nbytes)
        for one, box in zip(call.tensors, call.boxes, strict=True)
    ]
    return Look(plan, len(args), tensors, like, boxes, numbers, others)
