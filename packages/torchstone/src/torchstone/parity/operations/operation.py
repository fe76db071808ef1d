"""What an operator of the inventory is: an :class:`Operation`, which makes a small program of it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..zoo import Example


@dataclass(frozen=True)
class Operation:
    """One operator name of the inventory.

    ``calls`` are the PyTorch calls that it stands for; ``function`` makes an example of
    it in one dtype; ``dtypes`` are those to try, ``reason`` is what a user must know.
    """

    family: str
    name: str
    calls: str
    function: Callable[[torch.dtype], Example] = field(repr=False)
    dtypes: Sequence[torch.dtype]
    reason: str = ""

    def make(self, dtype: torch.dtype | None = None) -> Example:
        """The example in ``dtype`` (by default the first that it is tried in); the same at every call."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.name.encode()))
            example = self.function(dtype or self.dtypes[0])
        if isinstance(example.model, torch.nn.Module):
            example.model.eval()
        return example


FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)
BOOLS = (torch.bool,)
EVERY = (*FLOATS, *COMPLEX, *INTEGERS, *BOOLS)

OPERATIONS: dict[tuple[str, str], Operation] = {}
"""Family and name → operation."""

Make = Callable[..., torch.Tensor]


def tensors(dtype: torch.dtype) -> Make:
    """Makes random tensors of ``dtype``: ``make(2, 3, low=1)``, integers in [low, high)."""

    def make(*shape: int, low: float = -3, high: float = 3) -> torch.Tensor:
        if dtype == torch.uint8:
            low = max(low, 0)
        return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)

    return make


def operation(
    family: str,
    name: str,
    function: Callable[..., Any],
    args: Callable[[Make], tuple[Any, ...]],
    *,
    dtypes: Sequence[torch.dtype] = EVERY,
    calls: str = "",
    reason: str = "",
    **options: Any,
) -> None:
    """Register ``function(*args(make))``; ``options`` are those of the :class:`Example`."""

    def build(dtype: torch.dtype) -> Example:
        return Example(function, args(tensors(dtype)), **options)

    OPERATIONS[family, name] = Operation(family, name, calls or name, build, dtypes, reason)


def modelled(family: str, name: str, model: str, *, calls: str = "") -> None:
    """Register an operator that a model of the zoo shows, in float32."""
    from ..zoo import INVENTORY

    def build(dtype: torch.dtype) -> Example:
        return INVENTORY[model].make()

    OPERATIONS[family, name] = Operation(family, name, calls or name, build, (torch.float32,))
