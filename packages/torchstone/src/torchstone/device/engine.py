"""The engine behind the device: its programs, its numbers, zeros and larger copies of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy
import torch

from .. import dtypes, hlo
from ..config import config
from ..dtypes import DType
from ..hlo import Value
from ..runtime import flat, get_engine
from ..runtime.buffers import Device
from ..runtime.engine import CompileOptions
from . import layout

Run = Callable[[list[Any]], list[Any]]

_engine: Any = None


def engine() -> Any:
    """The engine that the configuration names when the device is first used; it stays for the process."""
    global _engine
    if _engine is None:
        _engine = get_engine(config.engine, config.device)
    return _engine


def is_started() -> bool:
    """Whether something has needed the engine."""
    return _engine is not None


def synchronize() -> None:
    """Wait for the programs that are running."""
    wait(marker())


def marker() -> Any:
    """An array that is ready when everything asked before is: the device runs its programs in order."""
    return zeros(1, dtypes.UINT8)


def wait(array: Any) -> None:
    """Return when ``array`` is there."""
    flat.wait(array)


def is_ready(array: Any) -> bool:
    """Whether ``array`` is there."""
    return flat.is_ready(array)


def place() -> Device:
    """The engine's device."""
    found: Device = engine().device
    return found


def is_gone(array: Any) -> bool:
    """Whether a program took ``array`` for itself."""
    return bool(array.is_deleted())


def memory() -> tuple[int, int] | None:
    """Bytes in use on the device and bytes in all; None where its plugin does not count them."""
    return flat.memory_of(place())


class Program:
    """A StableHLO program, which is compiled when it first runs.

    ``run`` is the function from arrays to arrays, ``module`` the program as a portable artifact; ``donated``
    are arguments that the run takes for itself.
    """

    __slots__ = ("arguments", "donated", "module", "run")

    def __init__(
        self,
        name: str,
        arguments: Sequence[hlo.Argument],
        body: Callable[[list[Value]], Sequence[Value]],
        donated: tuple[int, ...] = (),
    ) -> None:
        module = hlo.Module(name)
        module.build(arguments, body)
        self.arguments = tuple(arguments)
        self.donated = donated
        self.module = module.serialize(hlo.resolve_version("current"))
        self.run: Run = self._first_run

    def _first_run(self, arrays: list[Any]) -> list[Any]:
        self.compile()
        return self.run(arrays)

    def compile(self) -> None:
        """Have the engine compile it now. Raises :class:`EngineError` where that cannot be done."""
        options = {"options": CompileOptions(donate=self.donated)} if self.donated else {}
        self.run = engine().compile(self.module, **options).run_arrays


def compiled(
    name: str,
    arguments: Sequence[hlo.Argument],
    body: Callable[[list[Value]], Sequence[Value]],
) -> Run:
    """A program as a function from arrays to arrays."""
    program = Program(name, arguments, body)
    program.compile()
    return program.run


def is_pjrt() -> bool:
    """Whether the engine compiles every StableHLO operation, and reuses the memory of donated arguments."""
    return bool(engine().name == "pjrt")


def number(value: float, dtype: DType) -> Any:
    """A 0-d array of a Python number."""
    return _kept_number(value, dtype) if value else flat.from_number(place(), value, dtype.numpy)


@lru_cache(maxsize=256)
def _kept_number(value: float, dtype: DType) -> Any:
    """Zeros are not kept: the negative one equals the other."""
    return flat.from_number(place(), value, dtype.numpy)


def value_of(array: Any) -> Any:
    """The value of an array of one element."""
    return flat.value_of(array)


def seed(words: numpy.ndarray[Any, Any]) -> Any:
    """The seed of one random operator: uint64 ``[2]``."""
    return flat.from_words(place(), words)


def vector(values: Sequence[Any], dtype: DType) -> Any:
    """An array of Python numbers, or of NumPy arrays of one shape."""
    return flat.from_words(place(), numpy.asarray(values, dtype.numpy))


def from_host(given_away: torch.Tensor) -> Any:
    """A flat array of the values of a contiguous CPU tensor that nobody else writes.

    Bytes under a view of booleans may be neither 0 nor 1, which programs do not take for true.
    """
    if given_away.dtype is torch.bool:
        given_away = given_away.view(torch.uint8).ne(0)
    return flat.from_torch(place(), given_away)


def to_host(array: Any, dtype: DType) -> torch.Tensor:
    """The flat CPU tensor of an array, for reading."""
    return flat.to_torch(place(), array, dtype)


def zeros(count: int, dtype: DType) -> Any:
    """A flat array of zeros."""
    return _filled(count, dtype)([])[0]


@lru_cache(maxsize=256)
def _filled(count: int, dtype: DType) -> Run:
    return compiled("zeros", [], lambda _: [hlo.full((count,), 0, dtype)])


def grown(array: Any, dtype: DType, nbytes: int) -> tuple[Any, DType]:
    """``array`` with zeros behind it, up to ``nbytes``."""
    count = len(array)
    element = dtype if nbytes % dtype.itemsize == 0 else dtypes.UINT8
    return _growing(count, dtype, nbytes // element.itemsize, element)([array])[0], element


@lru_cache(maxsize=256)
def _growing(count: int, dtype: DType, wanted: int, element: DType) -> Run:
    def body(values: list[Value]) -> list[Value]:
        held = layout.reinterpreted(values[0], element)
        (length,) = held.shape
        return [hlo.pad_axis(held, 0, 0, 0, wanted - length)]

    return compiled("grow", [hlo.Argument((count,), dtype, "held")], body)
