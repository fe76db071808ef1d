"""The engine behind the device: compiling and running programs, and making and reading arrays."""

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
from ..runtime._jaxlib_runs import Execution
from ..runtime.buffers import Device
from ..runtime.engine import CompileOptions
from . import layout

Run = Callable[..., list[Any]]

_engine: Any = None


def engine() -> Any:
    """Return the engine that the configuration names at the first use; it stays the same in a process."""
    global _engine
    if _engine is None:
        _engine = get_engine(config.engine, config.device)
    return _engine


def is_started() -> bool:
    """Whether the engine has been started."""
    return _engine is not None


def synchronize() -> None:
    """Wait for all running programs to finish."""
    wait(marker())


def marker() -> Any:
    """Return an array that is ready once all earlier work is done, as the device runs programs in order."""
    return zeros(1, dtypes.UINT8)


def wait(array: Any) -> None:
    """Wait until ``array`` has been computed."""
    flat.wait(array)


def is_ready(array: Any) -> bool:
    """Whether ``array`` has been computed."""
    return flat.is_ready(array)


def place() -> Device:
    """Return the engine's device."""
    found: Device = engine().device
    return found


def is_gone(array: Any) -> bool:
    """Whether ``array`` was deleted because a program took it as a donated argument."""
    return bool(array.is_deleted())


def memory() -> tuple[int, int] | None:
    """Return the bytes in use and the total bytes of the device; None if its plugin does not count them."""
    return flat.memory_of(place())


class Program:
    """A StableHLO program that is compiled when it first runs.

    ``run`` is the function from arrays to arrays, and ``module`` is the program as a portable artifact. If
    arguments are donated, it also takes an :class:`Execution`.
    ``donated`` lists the arguments whose memory the run may reuse. ``read`` has the positions of those
    arguments that a result depends on.
    """

    __slots__ = ("arguments", "donated", "module", "read", "run")

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
        self.read = module.arguments_read()
        self.module = module.serialize(hlo.resolve_version("current"))
        self.run: Run = self._first_run

    def _first_run(self, arrays: list[Any], *execution: Execution) -> list[Any]:
        self.compile()
        return self.run(arrays, *execution)

    def compile(self) -> None:
        """Compile the program now. Raises :class:`EngineError` if the engine cannot."""
        options = {"options": CompileOptions(donate=self.donated)} if self.donated else {}
        self.run = engine().compile(self.module, **options).run_arrays


def compiled(
    name: str,
    arguments: Sequence[hlo.Argument],
    body: Callable[[list[Value]], Sequence[Value]],
) -> Run:
    """Compile a program and return it as a function from arrays to arrays."""
    program = Program(name, arguments, body)
    program.compile()
    return program.run


def is_pjrt() -> bool:
    """Whether the engine compiles every StableHLO operation, and reuses the memory of donated arguments."""
    return bool(engine().name == "pjrt")


def number(value: float, dtype: DType) -> Any:
    """Return a 0-d array of a Python number."""
    return _kept_number(value, dtype) if value else flat.from_number(place(), value, dtype.numpy)


@lru_cache(maxsize=256)
def _kept_number(value: float, dtype: DType) -> Any:
    """The cached array of a nonzero number. Zeros are not cached because 0.0 equals -0.0 as a key."""
    return flat.from_number(place(), value, dtype.numpy)


def value_of(array: Any) -> Any:
    """Return the value of an array of one element."""
    return flat.value_of(array)


def seed(words: numpy.ndarray[Any, Any]) -> Any:
    """Return the seed of one random operator as a uint64 array of shape ``[2]``."""
    return flat.from_words(place(), words)


def vector(values: Sequence[Any], dtype: DType) -> Any:
    """Return an array of Python numbers, or of NumPy arrays that have the same shape."""
    return flat.from_words(place(), numpy.asarray(values, dtype.numpy))


def from_host(given_away: torch.Tensor) -> Any:
    """Return a flat array of the values of a contiguous CPU tensor, which nobody may write afterwards.

    Booleans are normalized to 0 and 1. A view of booleans may have other bytes in memory, and programs would
    not treat these as true.
    """
    if given_away.dtype is torch.bool:
        given_away = given_away.view(torch.uint8).ne(0)
    return flat.from_torch(place(), given_away)


def to_host(array: Any, dtype: DType) -> torch.Tensor:
    """Return the values of an array as a flat CPU tensor, which must only be read."""
    return flat.to_torch(place(), array, dtype)


def zeros(count: int, dtype: DType) -> Any:
    """Return a flat array of zeros."""
    return _filled(count, dtype)([])[0]


@lru_cache(maxsize=256)
def _filled(count: int, dtype: DType) -> Run:
    return compiled("zeros", [], lambda _: [hlo.full((count,), 0, dtype)])


def grown(array: Any, dtype: DType, nbytes: int) -> tuple[Any, DType]:
    """Return ``array`` padded with zeros to ``nbytes``, and its dtype.

    The dtype becomes uint8 if ``nbytes`` is not a whole number of elements.
    """
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
