"""Rules for the indices and values that eager PyTorch checks when a call runs; lowerings declare them.

A program cannot raise an error. With ``config.check_indices`` and ``config.check_values``, it returns one
more bool for each rule, and its caller raises the error. Not here: how such a bool becomes a result of the
program (``compiler.checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Arguments = Mapping[str, Any]
Axes = tuple[str, Sequence[int]]
"""An operand's name and some of its axes. The product of their sizes is the number of valid positions."""


@dataclass(frozen=True)
class IndexRule:
    """Which indices an operand may hold, and what the program does with others.

    ``operand`` is the schema parameter with the indices. ``extent`` returns the axes that they run over,
    given the fake arguments; if the operand is a list of indices, it is called with the ``dim`` of each one.
    ``negative`` allows indices that count from the end. ``effect`` says what the program does with an index
    out of range. ``exempt`` is a value that is out of range but has a meaning of its own.
    """

    operand: str
    extent: Callable[[Arguments], Axes]
    effect: str
    negative: bool = False
    exempt: int | None = None


def along(given: Arguments) -> Axes:
    """Indices along the axis ``dim`` of ``self``."""
    return "self", [given["dim"]] if given["self"].dim() else []


def elements(given: Arguments) -> Axes:
    """Indices of the elements of ``self``, flattened."""
    return "self", range(given["self"].dim())


def rows(given: Arguments) -> Axes:
    """Indices of the rows of ``weight``, or of ``self`` if there is no ``weight``."""
    return "weight" if "weight" in given else "self", [0]


def classes(given: Arguments) -> Axes:
    """Indices of the classes that a loss has scores for; a 0-d score is one class."""
    rank = given["self"].dim()
    return "self", [min(rank - 1, 1)] if rank else []


CLAMPED = "the nearest element is read"
DROPPED = "nothing is written"
NEAREST_CLASS = "the nearest class is read"
NO_CLASS = "no class is the target, and the target's score is zero"


@dataclass(frozen=True)
class ValueRule:
    """A requirement of eager PyTorch on the values of a call.

    ``says`` is PyTorch's error message, without the numbers that only a running kernel knows. It may be a
    function of the call's arguments. ``holds`` takes arguments by their schema names, and the call's result
    as ``result``. It computes a bool tensor with PyTorch's operators, all true if the values are valid, or
    returns None if there is nothing to check.
    """

    says: str | Callable[[Arguments], str]
    holds: Callable[..., torch.Tensor | None]
