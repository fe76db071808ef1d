"""What is known of one operator, in one record.

A lowering (:mod:`.registry`) and what the compiler has to know besides (``compiler.operators``) are
declared where their code lives, each part once. Every table is read from these records.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import DType
from ..torch_internals.operators import HigherOrderOperator, OpOverload
from .checks import IndexRule, ValueRule

Check = Callable[[Mapping[str, Any]], str | None]
"""From a call's arguments (fake tensors, by schema name) to what there is against it; None if nothing."""
Kernels = Mapping[Any, Callable[..., Any]]
"""Kernels in Python by dispatch key."""


@dataclass(frozen=True)
class _Lowered:
    """What the lowerings of overloads and of higher-order operators share."""

    function: Callable[..., Any]
    family: str

    @property
    def documentation(self) -> str:
        """The first line of the lowering's docstring."""
        return first_line(self.function)


@dataclass(frozen=True)
class Lowering(_Lowered):
    """How one overload is lowered.

    ``dtypes`` are those of its first tensor operand (of the result, if it has
    none); ``gaps`` gives the reason for each dtype that PyTorch's CPU kernels
    take and this lowering does not. ``refuses`` says why a call with the given
    arguments cannot be lowered, or None. ``indices`` and ``values`` are what eager PyTorch
    asks of them when a call runs.
    """

    overload: OpOverload
    dtypes: frozenset[DType]
    gaps: Mapping[DType, str] = field(default_factory=dict)
    refuses: Check | None = None
    indices: IndexRule | None = None
    values: tuple[ValueRule, ...] = ()
    special: frozenset[str] = frozenset()
    parameters: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Other names that parameters have in some supported versions of PyTorch."""
    respelled: Mapping[str, str] = field(default_factory=dict)
    """A parameter's name in this PyTorch's schema → the name that the lowering gives it, if they differ."""

    @property
    def name(self) -> str:
        return str(self.overload)

    @property
    def operator(self) -> OpOverload:
        return self.overload


@dataclass(frozen=True)
class HigherOrderLowering(_Lowered):
    """How one higher-order operator is lowered; its subgraphs have dtypes of their own."""

    operator: HigherOrderOperator

    @property
    def name(self) -> str:
        return str(self.operator)


@dataclass
class Record:
    """All that Torchstone knows of one operator; a part that is not declared is None.

    ``operator`` is an overload, a higher-order operator, or a function that graphs call.
    """

    operator: Any
    lowering: Lowering | None = None
    higher_order: HigherOrderLowering | None = None
    decomposition: Callable[..., Any] | None = None
    """Rewrites a call to other ATen operators before lowering, in place of PyTorch's own decomposition."""
    unavailable: str | None = None
    """Why this PyTorch's version of the operator is not lowered."""
    excluded: str | None = None
    """Why no program can contain it."""
    eager: str | None = None
    """Why eager PyTorch runs it, between compiled parts, by choice."""
    no_effect: str | None = None
    """Why a program leaves it out."""
    assertion: ValueRule | None = None
    """What an operator without results requires: it raises in eager PyTorch."""
    arguments: Check | None = None
    """What eager PyTorch says against arguments that tracing takes."""
    stand_in: Kernels | None = None
    """What PyTorch traces instead of its own kernels while it captures a model."""
    mended: Callable[[], Kernels] | None = None
    """What every trace has instead of PyTorch's own kernels, which are wrong or cannot be traced."""
    shapes: Callable[..., Any] | None = None
    """The rule ``(mode, overload, *args)`` for fake tensors that every trace has and PyTorch lacks."""
    answer: bool | None = None
    """What it answers about values, which are not known, while a derivative is traced."""
    derivative: str | None = None
    """How its gradient is made, if PyTorch does not know by itself."""
    rules: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    """Capture rules for the operator, or that call it, by what each replaces."""

    @property
    def name(self) -> str:
        return self.operator.__name__ if inspect.isroutine(self.operator) else str(self.operator)


def first_line(function: Callable[..., Any]) -> str:
    """What a function's docstring says first."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
