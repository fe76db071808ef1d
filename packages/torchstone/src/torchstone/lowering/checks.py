"""What eager PyTorch asks of indices and values when a call runs: rules that stand beside a lowering.

A program cannot raise. With ``config.check_indices`` and ``config.check_values`` it answers these
questions with one more bool each, and whoever calls it raises. Not here: how an answer becomes a
result of the program (``compiler.checks``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Arguments = Mapping[str, Any]
Axes = tuple[str, Sequence[int]]
"""An operand's name and some of its axes; the product of their sizes is a number of positions."""


@dataclass(frozen=True)
class IndexRule:
    """What an operator's index operand may hold, and what happens to the rest.

    ``operand`` is the schema parameter with the indices; ``extent`` says, from the fake
    arguments, which operand's axes they run over (of a list of indices it is asked with
    each one's ``dim``); ``negative`` allows counting from the end; ``effect`` is what the
    program does out of range; ``exempt`` is a value out of range that means something else.
    """

    operand: str
    extent: Callable[[Arguments], Axes]
    effect: str
    negative: bool = False
    exempt: int | None = None


def along(given: Arguments) -> Axes:
    """The axis ``dim`` of ``self``."""
    return "self", [given["dim"]] if given["self"].dim() else []


def elements(given: Arguments) -> Axes:
    """All elements of ``self``."""
    return "self", range(given["self"].dim())


def rows(given: Arguments) -> Axes:
    """The rows of a table."""
    return "weight" if "weight" in given else "self", [0]


def classes(given: Arguments) -> Axes:
    """The classes that a loss has scores of; a single score is one class."""
    rank = given["self"].dim()
    return "self", [min(rank - 1, 1)] if rank else []


CLAMPED = "the nearest element is read"
DROPPED = "nothing is written"
NEAREST_CLASS = "the nearest class is read"
NO_CLASS = "no class is the target, and the target's score is zero"


@dataclass(frozen=True)
class ValueRule:
    """What eager PyTorch requires of the values of a call.

    ``says`` is what PyTorch says where they are refused (without the numbers that only a
    running kernel knows); a function makes it from the call's arguments. ``holds`` takes
    arguments by their schema names, and the call's result as ``result``; it computes a bool
    tensor with PyTorch's operators, all true if the values are right, or None where there is
    nothing to ask.
    """

    says: str | Callable[[Arguments], str]
    holds: Callable[..., torch.Tensor | None]
