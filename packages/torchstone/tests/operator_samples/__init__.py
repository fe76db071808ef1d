"""Sample arguments of every overload in the registry, one module per operator family.

A sample function takes a :class:`Make` for one dtype and yields
:class:`~torchstone.parity.operators.Sample` objects: typical, empty, 0-d,
size-1, broadcast and non-contiguous arguments, and the operator's own edges.
"""

from __future__ import annotations

import importlib
import pkgutil
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch._ops import OpOverload
from torch.testing import make_tensor

from torchstone.parity.operators import Sample

__all__ = ["SAMPLES", "Make", "Sample", "SampleSet", "load_samples", "samples"]


class Make:
    """Makes tensors of the dtype under test; equal seeds give equal tensors."""

    def __init__(self, dtype: torch.dtype, seed: int) -> None:
        self.dtype = dtype
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would format a stack for each device

    def __call__(
        self,
        *shape: int,
        low: float | None = None,
        high: float | None = None,
        dtype: torch.dtype | None = None,
        nonzero: bool = False,
        noncontiguous: bool = False,
    ) -> torch.Tensor:
        """Random values; for floats in [low, high), by default [-9, 9)."""
        wanted = dtype or self.dtype
        if wanted is torch.float8_e8m0fnu:  # make_tensor does not support it: use powers of two
            return torch.exp2(torch.randint(-8, 9, shape)).to(wanted)
        if nonzero and wanted in (torch.uint16, torch.uint32, torch.uint64):  # lacks masked_fill
            low, nonzero = max(low or 1, 1), False
        return make_tensor(
            shape,
            dtype=wanted,
            device="cpu",
            low=low,
            high=high,
            exclude_zero=nonzero,
            noncontiguous=noncontiguous,
        )

    def tensor(self, data: Any) -> torch.Tensor:
        """Given values in the dtype under test."""
        return torch.tensor(data).to(self.dtype)

    def transposed(self, *shape: int, **options: Any) -> torch.Tensor:
        """Like a call, but with the strides of a transposed tensor; ``shape`` has two axes or more."""
        return self(*reversed(shape), **options).permute(*reversed(range(len(shape))))

    def indices(self, *shape: int, high: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers in [0, high)."""
        return torch.randint(0, max(high, 1), shape, dtype=dtype)

    def bools(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape) > 0.5

    def edges(self) -> torch.Tensor:
        """The dtype's special values: signed zeros, infinities, NaN, extremes; or integer extremes."""
        if self.dtype.is_complex:
            part = [0.0, -0.0, 1.5, -2.5, float("inf"), float("nan")]
            return torch.tensor([complex(a, b) for a in part for b in part]).to(self.dtype)
        if self.dtype.is_floating_point:
            info = torch.finfo(self.dtype)
            special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, info.max, info.min, info.tiny]
            return torch.tensor([*special, float("inf"), float("-inf"), float("nan")], dtype=self.dtype)
        if self.dtype == torch.bool:
            return torch.tensor([True, False])
        limits = torch.iinfo(self.dtype)
        return torch.tensor(
            [v for v in (0, 1, 2, 3, 7, -1, -2, -7, limits.max, limits.min) if limits.min <= v <= limits.max],
            dtype=self.dtype,
        )

    @property
    def is_float(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def is_complex(self) -> bool:
        return self.dtype.is_complex


SampleFunction = Callable[[Make], Iterable[Sample]]


@dataclass(frozen=True)
class SampleSet:
    """The samples of one overload.

    ``gradient`` is False if PyTorch does not differentiate the overload. ``random`` is True if the values are
    drawn or unspecified, so that only shape and dtype are compared.
    """

    overload: OpOverload
    function: SampleFunction
    gradient: bool
    reason: str = ""
    random: bool = False

    def maker(self, dtype: torch.dtype) -> Make:
        return Make(dtype, zlib.crc32(f"{self.overload}{dtype}".encode()))

    def make(self, dtype: torch.dtype) -> list[Sample]:
        return list(self.function(self.maker(dtype)))


SAMPLES: dict[OpOverload, SampleSet] = {}


def samples(
    *overloads: OpOverload, gradient: bool = True, reason: str = "", random: bool = False
) -> Callable[[SampleFunction], SampleFunction]:
    """Register a sample function for overloads.

    ``gradient=False`` needs a ``reason`` unless PyTorch's operator has no derivative at all.
    ``random=True`` is for values that another run does not repeat; their gradients are not checked either.
    """

    def register(function: SampleFunction) -> SampleFunction:
        for overload in overloads:
            assert overload not in SAMPLES, f"{overload} has samples twice"
            SAMPLES[overload] = SampleSet(overload, function, gradient and not random, reason, random)
        return function

    return register


def gradient_samples(*overloads: OpOverload) -> Callable[[SampleFunction], SampleFunction]:
    """Register samples of linear gradients, which the forward operator's own gradients test."""
    return samples(*overloads, gradient=False, reason="linear: the forward's gradient tests it")


def defaults(namespace: object, names: str) -> list[OpOverload]:
    """Return the default overloads of the operators in ``names``, which are separated by spaces."""
    return [getattr(namespace, name).default for name in names.split()]


def load_samples() -> dict[OpOverload, SampleSet]:
    """All samples, with every family module imported."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return SAMPLES
