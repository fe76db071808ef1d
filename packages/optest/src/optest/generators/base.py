"""The interface of generators, what they read from a case, and loading them by dotted path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.dtypes import kind_of
from ..dotted import load_object
from ..errors import UsageError
from ..operators.domain import ANY, Domain

if TYPE_CHECKING:
    from ..core.case import TestCase

Array = NDArray[Any]
Generated = tuple[tuple[Array, ...], tuple[Array, ...] | None]


class Generator(Protocol):
    """Makes the inputs of cases.

    ``generate`` returns one array per input, of the case's shapes and dtypes, and the
    expected outputs, or None if the case's reference computes them. All randomness comes
    from ``rng``.
    """

    def generate(self, case: TestCase, rng: np.random.Generator) -> Generated: ...


class Input:
    """One input of a case, as generators see it."""

    __slots__ = ("domain", "dtype", "index", "name", "shape")

    def __init__(self, name: str, shape: tuple[int, ...], dtype: str, domain: Domain, case: TestCase) -> None:
        if domain.floats and kind_of(np.dtype(dtype)) == "int":
            domain = replace(domain, low=None, high=None)
        self.name, self.shape, self.dtype, self.domain = name, tuple(shape), dtype, domain
        self.index = _indexed(self, case) if domain.indices_of is not None else None
        """For indices: ``(size of the axis they point into, axis along which they are distinct or None)``."""

    @property
    def floating(self) -> bool:
        return kind_of(np.dtype(self.dtype)) == "float"

    def may_be(self, value: float) -> bool:
        """Whether ``value`` is NaN or within the domain's bounds."""
        low, high = self.domain.low, self.domain.high
        return not ((low is not None and value < low) or (high is not None and value > high))


def inputs_of(case: TestCase) -> Iterator[Input]:
    """Yield the inputs of ``case`` in order."""
    descriptor = case.descriptor
    for name, dtype in zip(descriptor.inputs, case.dtypes, strict=True):
        yield Input(name, case.shapes[name], dtype, descriptor.domain.get(name, ANY), case)


def _indexed(one: Input, case: TestCase) -> tuple[int, int | None]:
    """Return the size of the axis that indices point into, and the axis along which they are distinct.

    The latter is the domain's axis or the attribute that chooses the axis; None if there is neither.
    """
    assert one.domain.indices_of is not None
    source, place = one.domain.indices_of
    shape = case.shapes[source]
    dim = case.attributes[place] if isinstance(place, str) else place
    size = shape[dim] if shape else 1
    if one.domain.axis is not None:
        return size, one.domain.axis
    if isinstance(place, str) and len(one.shape) > 1:
        return size, dim % len(one.shape)
    return size, None


@cache
def load_generator(path: str) -> Generator:
    """Return the generator at ``path``: an instance, or a class that is called without arguments.

    There is one instance per path and process. Raises :class:`UsageError` if it has no ``generate``.
    """
    found = load_object(path, "generator")
    try:
        made = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:  # a user's class may raise anything
        raise UsageError(
            f"the generator {path!r} cannot be made: {type(error).__name__}: {error}",
            "its class is called without arguments",
        ) from error
    if not callable(getattr(made, "generate", None)):
        raise UsageError(
            f"the generator {path!r} has no method generate(case, rng)",
            "see optest.generators.RandomTensorGenerator",
        )
    return made
