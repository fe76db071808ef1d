"""The record of an operator: everything that Torchstone knows about it.

The parts of a record are the lowering (:mod:`.registry`) and other facts that the compiler needs
(``compiler.operators``). Each part is declared once, next to its code. All tables are read from the records.
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
"""Maps a call's arguments (fake tensors, by schema name) to the reason to refuse the call, or None."""
Kernels = Mapping[Any, Callable[..., Any]]
"""Maps dispatch keys to kernels written in Python."""


@dataclass(frozen=True)
class _Lowered:
    """The base class of the lowerings of overloads and of higher-order operators."""

    function: Callable[..., Any]
    family: str

    @property
    def documentation(self) -> str:
        """The first line of the lowering's docstring."""
        return first_line(self.function)


@dataclass(frozen=True)
class Lowering(_Lowered):
    """The lowering of one overload.

    ``dtypes`` are the supported dtypes of the first tensor operand (of the result, if there is no such
    operand). ``gaps`` gives the reason for each dtype that PyTorch's CPU kernels accept and this lowering
    does not. ``refuses`` returns the reason why a call with the given arguments cannot be lowered, or None.
    ``indices`` and ``values`` are the rules that eager PyTorch checks when a call runs.
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
    """Maps a parameter's name in this PyTorch's schema to its name in the lowering, if they differ."""

    @property
    def name(self) -> str:
        return str(self.overload)

    @property
    def operator(self) -> OpOverload:
        return self.overload


@dataclass(frozen=True)
class HigherOrderLowering(_Lowered):
    """The lowering of one higher-order operator, whose subgraphs have dtypes of their own."""

    operator: HigherOrderOperator

    @property
    def name(self) -> str:
        return str(self.operator)


@dataclass
class Record:
    """Everything that Torchstone knows about one operator; a part that is not declared is None.

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
    """Why no program can contain the operator."""
    eager: str | None = None
    """Why Torchstone chooses to run the operator in eager PyTorch, between compiled parts."""
    no_effect: str | None = None
    """Why a program leaves the operator out."""
    assertion: ValueRule | None = None
    """The condition that an operator without results checks; eager PyTorch raises if it does not hold."""
    arguments: Check | None = None
    """Returns the error of eager PyTorch for arguments that it rejects although tracing accepts them."""
    stand_in: Kernels | None = None
    """The kernels that PyTorch traces in place of its own while it captures a model."""
    mended: Callable[[], Kernels] | None = None
    """Returns the kernels for every trace, in place of PyTorch's own that are wrong or cannot be traced."""
    shapes: Callable[..., Any] | None = None
    """The rule ``(mode, overload, *args)`` for fake tensors; PyTorch lacks it, and every trace has it."""
    answer: bool | None = None
    """The operator's answer about values while a derivative is traced, because they are unknown then."""
    derivative: str | None = None
    """How the gradient of the operator is computed, if PyTorch has no rule for it."""
    rules: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    """Maps each replaced object to its capture rule; the rule is for the operator or calls it."""

    @property
    def name(self) -> str:
        return self.operator.__name__ if inspect.isroutine(self.operator) else str(self.operator)


def first_line(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring."""
    return (inspect.getdoc(function) or "").partition("\n")[0]
