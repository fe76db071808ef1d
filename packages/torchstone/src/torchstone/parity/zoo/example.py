"""The form of a model in the zoo: an :class:`Example`, made by a function that :func:`model` registers.

Not here: the models themselves; each family has its own file.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass(frozen=True)
class Example:
    """A model (a module or a function) with everything that is needed to run it.

    ``dynamic_shapes`` is what ``torch.export`` takes; ``others`` are further
    arguments, of other sizes, that the same program accepts. ``trains`` is False
    if eager PyTorch differentiates nothing; ``held`` has the positions of
    arguments whose gradient is not taken. ``ruled`` says that the model needs capture
    rules, so that ``torch.compile`` gets the captured graph. ``bounds`` are declared
    during capture (an empty dict: the default bounds); results whose size depends
    on values are then padded, and the last result is the true size. ``reference`` is the
    function that eager runs if PyTorch has the model only on accelerators. ``in_eager``
    names the overloads that compiled training leaves to eager PyTorch.
    """

    model: Callable[..., Any]
    args: tuple[Any, ...]
    dynamic_shapes: Any = None
    others: tuple[tuple[Any, ...], ...] = ()
    trains: bool = True
    held: tuple[int, ...] = ()
    ruled: bool = False
    bounds: Mapping[str, int] | None = None
    reference: Callable[..., Any] | None = None
    in_eager: tuple[str, ...] = ()


@dataclass(frozen=True)
class ZooModel:
    """One entry of the inventory: family, name, one line about it, and how to make it."""

    family: str
    name: str
    documentation: str
    function: Callable[[], Example] = field(repr=False)

    def make(self) -> Example:
        """Make the example in evaluation mode, always with the same values; keep PyTorch's random state."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(zlib.crc32(self.name.encode()))
            example = self.function()
        if isinstance(example.model, torch.nn.Module):
            example.model.eval()
        return example

    def __call__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return ``(model, args)``, as the factories that users write do."""
        example = self.make()
        return example.model, example.args


INVENTORY: dict[str, ZooModel] = {}
"""The models of the inventory by name, family by family."""

Factory = Callable[[], Example]


def model(function: Factory) -> Factory:
    """Register ``function`` under its own name (without a trailing underscore), in the family of its file."""
    register(
        function.__module__,
        function.__name__.rstrip("_"),
        (function.__doc__ or "").partition("\n")[0],
        function,
    )
    return function


def register(module: str, name: str, documentation: str, function: Factory) -> None:
    """Register one model of a table in ``module``; use :func:`model` for a single model."""
    if name in INVENTORY:
        raise ValueError(f"the zoo has two models named {name}")
    INVENTORY[name] = ZooModel(module.rpartition(".")[2], name, documentation, function)
