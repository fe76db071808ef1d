"""An operator's call taken apart: the key of its program, and the storages and numbers that it runs on.

The key holds everything that the program depends on: dtypes, geometry, which tensors share a storage, the
arguments that are part of the program, and PyTorch's default dtype, which is the dtype of factory results
and of quotients of integers. The key does not hold the values of tensors, of 0-d CPU tensors, or of numbers
that are arguments of the program (:mod:`.numbers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import torch

from .. import dtypes
from ..dtypes import DType
from ..errors import UnsupportedDtype
from .storage import DEVICE_TYPE, Box, box_of

Tensor = torch.Tensor
KINDS_OF_NUMBERS = {int: dtypes.INT64, float: dtypes.FLOAT64}
END_OF_INTEGERS = 1 << 63
_GENERATOR = type(torch.default_generator)
"""PyTorch's generator class. The name ``torch.Generator`` also makes generators of other devices."""
_COMPLEX = frozenset({torch.complex32, torch.complex64, torch.complex128})
PLAIN = frozenset({int, str, type(None), torch.dtype, torch.layout, torch.memory_format})


class Operands:
    """What a plan takes from a call.

    ``tensors`` holds the device tensors and the 0-d CPU tensors in the order of the arguments, ``boxes`` the
    boxes of the device tensors, each once.
    """

    __slots__ = ("boxes", "generator", "numbers", "tensors")

    tensors: Sequence[Tensor]
    boxes: Sequence[Box]
    numbers: Sequence[tuple[float, DType]]
    generator: torch.Generator | None


class Call(Operands):
    """The operands of one call, and its key.

    ``places`` holds, for each tensor, the index of its box in ``boxes``, or -1 for a CPU tensor.
    """

    __slots__ = ("_place_of", "key", "names", "places")

    def __init__(self, numbers: frozenset[int | str] = frozenset()) -> None:
        self.tensors: list[Tensor] = []
        self.boxes: list[Box] = []
        self.numbers: list[tuple[float, DType]] = []
        self.generator = None
        self.key: list[Any] = [torch.get_default_dtype()]
        self.places: list[int] = []
        self._place_of: dict[Box, int] = {}
        self.names = numbers

    def describe(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Take all arguments and return the key of the call."""
        self._take(enumerate(args))
        if kwargs:
            self.key.extend(kwargs)
            self._take(kwargs.items())
        return tuple(self.key)

    def _take(self, values: Iterable[tuple[int | str | None, Any]]) -> None:
        """Take arguments with their positions or names, or the items of a list."""
        key, names, boxes, place_of = self.key, self.names, self.boxes, self._place_of
        for name, value in values:
            if not isinstance(value, Tensor):
                if name in names and self.is_number(value):
                    self._number(value)
                else:
                    self._other(value)
                continue
            try:
                box: Box = value.untyped_storage().box  # type: ignore[attr-defined]
            except (AttributeError, NotImplementedError):  # a CPU tensor, or one that PyTorch itself made
                if value.is_cpu:
                    self._host(value)
                    continue
                box = box_of(value)
            dtype = value.dtype
            known = len(boxes)
            place = place_of.setdefault(box, known)
            if place == known:
                boxes.append(box)
                if box.array is None:
                    element = element_of(dtype)
                    if box.nbytes % element.itemsize == 0:
                        box.dtype = element
            self.tensors.append(value)
            self.places.append(place)
            key.append(
                (
                    dtype,
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    place,
                    box.dtype.name,
                    box.nbytes,
                    value.is_neg() + (2 if dtype in _COMPLEX and value.is_conj() else 0),
                )
            )

    def _host(self, tensor: Tensor) -> None:
        if tensor.dim():
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices,"
                f" {DEVICE_TYPE}:0 and cpu! A tensor of shape {list(tensor.shape)} is on the CPU\n"
                f'  next: move it with .to("{DEVICE_TYPE}"); only 0-d tensors may stay on the CPU'
            )
        self.tensors.append(tensor)
        self.places.append(-1)
        self.key += (tensor.dtype, "cpu")

    def is_number(self, value: Any) -> bool:
        """Whether ``value`` is an argument of the program: a number beside a floating-point tensor."""
        kind = type(value)
        if kind not in KINDS_OF_NUMBERS or not self.tensors or not _is_inexact(self.tensors[0].dtype):
            return False
        return kind is float or bool(-END_OF_INTEGERS <= value < END_OF_INTEGERS)

    def _number(self, value: float) -> None:
        kind = KINDS_OF_NUMBERS[type(value)]
        self.numbers.append((value, kind))
        self.key.append(kind.name)

    def _other(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.key.append(value)
        elif kind in (list, tuple):
            self.key += ("[", len(value))
            self._take(zip(repeat(None), value))
        elif kind is torch.device:
            check_device(value)
        elif issubclass(kind, _GENERATOR):
            self.generator = value
        else:  # bool, float, complex: values of different types or signs may be equal, but need other keys
            self.key += (kind, repr(value))


def _is_inexact(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def check_device(device: torch.device) -> None:
    """Raise ``RuntimeError`` if ``device`` is a pjrt device whose index is not 0."""
    if device.type == DEVICE_TYPE and device.index not in (None, 0):
        raise RuntimeError(
            f'there is no device "{device}": PyTorch gives a device written in Python one index, 0\n'
            f'  next: use "{DEVICE_TYPE}" or "{DEVICE_TYPE}:0"; config.device chooses which PJRT device it is'
        )


def element_of(dtype: torch.dtype) -> DType:
    """Return the dtype of a storage's array for tensors of ``dtype``: uint8 if the engine has none for it."""
    try:
        found = dtypes.from_torch(dtype)
    except UnsupportedDtype:
        return dtypes.UINT8
    return dtypes.UINT8 if found in dtypes.SUB_BYTE else found


def substituted(
    call: Call,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    tensor: Callable[[Tensor], Any],
    number: Callable[[float], Any] | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """Return the call's arguments for the CPU, with tensors and the program's numbers replaced in order.

    ``tensor`` and ``number`` return the replacements. Without ``number``, numbers stay.
    """

    def one(value: Any, name: int | str | None = None) -> Any:
        if isinstance(value, Tensor):
            return tensor(value)
        if number is not None and name in call.names and call.is_number(value):
            return number(value)
        if type(value) in (list, tuple):
            return [one(item) for item in value]
        if isinstance(value, torch.device):
            return torch.device("cpu") if value.type == DEVICE_TYPE else value
        return None if isinstance(value, _GENERATOR) else value

    return (
        [one(value, position) for position, value in enumerate(args)],
        {name: one(value, name) for name, value in kwargs.items()},
    )
