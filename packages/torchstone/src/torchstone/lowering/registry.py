"""The registry: the only list of what can be lowered, and of all else that is known of operators.

A lowering is a pure function from values to values. It is named by the ATen
overloads that it implements and has their schema's parameter names, which are
checked when it is registered. Beside the schema's parameters it may ask for

``out``
    a :class:`Spec` (or a tuple of them): shape and dtype that PyTorch says the
    result has;
``rng``
    a :class:`torchstone.hlo.Rng` of its own (random operators);
``meta``
    the fake tensors of the arguments by parameter name (for strides);
``expand``
    PyTorch's own expansion of this call (of a composite-implicit operator): a function
    from the values of its tensor arguments, in the schema's order, to those of its results;
``expand_wide``
    the same, computed in float32 where arguments are 16-bit floats.

Tensors arrive as :class:`torchstone.hlo.Value`, dtypes as
:class:`torchstone.dtypes.DType`, sizes as ints or symbols, everything else as
plain Python.
"""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from .. import hlo
from ..dtypes import STANDARD, DType
from ..errors import LoweringDefinitionError
from ..torch_internals import versions
from ..torch_internals.operators import HigherOrderOperator, MissingOverload, OpOverload, schema_of
from .checks import IndexRule, ValueRule
from .record import Check, HigherOrderLowering, Lowering, Record

SPECIAL = frozenset({"out", "rng", "meta", "expand", "expand_wide"})
EXPANSIONS = frozenset({"expand", "expand_wide"})
IGNORED = frozenset(
    {"layout", "device", "pin_memory", "memory_format", "non_blocking", "generator", "implicit"}
)
"""Schema parameters that say nothing about the values of the result."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Spec:
    """Shape and dtype that PyTorch gives one result."""

    shape: hlo.Shape
    dtype: DType


class Registry:
    """Operator → record. :data:`registry` is the process's own."""

    def __init__(self) -> None:
        self._records: dict[Any, Record] = {}
        self._tables: dict[str, Mapping[Any, Any]] = {}
        self.lost_families: dict[str, str] = {}
        """Families that an untested PyTorch keeps from loading as a whole, and why."""

    def __contains__(self, operator: object) -> bool:
        found = self.record(operator)
        return (found.lowering or found.higher_order) is not None

    def __iter__(self) -> Iterator[Lowering]:
        return iter(sorted(self.table("lowering").values(), key=lambda lowering: lowering.name))

    def __len__(self) -> int:
        return len(self.table("lowering"))

    def record(self, operator: Any) -> Record:
        """What is known of ``operator``; an empty record if nothing is."""
        return self._records.get(operator) or Record(operator)

    def declare(self, operator: Any, **parts: Any) -> None:
        """Fill in parts of an operator's record.

        Raises :class:`LoweringDefinitionError` for a part that is declared already.
        """
        record = self._records.setdefault(operator, Record(operator))
        for part, value in parts.items():
            if getattr(record, part) is not None:
                raise LoweringDefinitionError(f"{record.name} has its {part} declared twice")
            setattr(record, part, value)
            self._note(part, operator, value)

    def _note(self, part: str, operator: Any, value: Any) -> None:
        self._tables[part] = types.MappingProxyType({**self.table(part), operator: value})

    def table(self, part: str) -> Mapping[Any, Any]:
        """One part of all records that have it, by operator: as it is now, whatever is declared later."""
        return self._tables.get(part, types.MappingProxyType({}))

    def add_rule(self, operator: Any, replaced: Any, rule: Callable[..., Any]) -> None:
        """Note in a record what is called instead of ``replaced`` while a model is captured."""
        rules = self._records.setdefault(operator, Record(operator)).rules
        rules[replaced] = rule
        self._note("rules", operator, rules)

    def get(self, overload: Any) -> Lowering | None:
        return self.record(overload).lowering

    def higher_order(self, operator: Any) -> Callable[..., Any] | None:
        """The lowering of a higher-order operator; its subgraphs arrive as callables of values."""
        found = self.record(operator).higher_order
        return None if found is None else found.function

    def higher_order_lowerings(self) -> list[HigherOrderLowering]:
        """All lowerings of higher-order operators, by name."""
        return sorted(self.table("higher_order").values(), key=lambda lowering: lowering.name)

    def overloads(self) -> frozenset[Any]:
        return frozenset(self.table("lowering"))

    @property
    def decompositions(self) -> Mapping[OpOverload, Callable[..., Any]]:
        """How calls are rewritten to other ATen operators before lowering (:func:`decomposes`)."""
        return self.table("decomposition")

    @property
    def unavailable(self) -> dict[str, str]:
        """What is not lowered since this PyTorch lacks it or declares it otherwise, and why."""
        lacking = self.table("unavailable").items()
        return {str(operator): reason for operator, reason in lacking} | self.lost_families

    def add(self, lowering: Lowering | HigherOrderLowering) -> None:
        """Raises :class:`LoweringDefinitionError` if the operator has a lowering already."""
        part = "lowering" if isinstance(lowering, Lowering) else "higher_order"
        known = getattr(self.record(lowering.operator), part)
        if known is not None:
            places = _place(known.function), _place(lowering.function)
            raise LoweringDefinitionError(
                f"{lowering.name} is lowered twice: by {places[0]} and by {places[1]}"
            )
        self.declare(lowering.operator, **{part: lowering})

    def remove(self, overload: Any) -> None:
        """Forget a lowering (for tests and for users who replace one)."""
        if overload in self._records:
            self._records[overload].lowering = None
            left = {one: known for one, known in self.table("lowering").items() if one != overload}
            self._tables["lowering"] = types.MappingProxyType(left)


registry = Registry()


def lowers(
    *overloads: OpOverload,
    dtypes: frozenset[DType] = STANDARD,
    gaps: Mapping[DType, str] | None = None,
    ignores: Iterable[str] = (),
    refuses: Check | None = None,
    indices: IndexRule | None = None,
    values: Iterable[ValueRule] = (),
    renamed: Mapping[str, str] | None = None,
    into: Registry = registry,
) -> Callable[[Function], Function]:
    """Register a function as the lowering of one or more overloads.

    ``ignores`` names schema parameters that the function does not take although
    they matter elsewhere (say why beside it); layout, device, pinning and
    memory format never change values and are ignored everywhere. ``refuses`` is
    for calls that only their arguments tell apart from those that can be lowered. ``indices`` and
    ``values`` are what eager PyTorch asks of them when a call runs (see :mod:`.checks`).
    ``renamed`` gives the other name that a parameter has in some supported versions of PyTorch.

    An overload that this PyTorch lacks is left out, and so is one of Torchstone's own lowerings whose
    schema an untested PyTorch has changed; ``Registry.unavailable`` says why.

    Raises :class:`LoweringDefinitionError` if it is not a Python function of a module, if its
    parameters are not the schema's, if it does not use one, or if an overload is registered twice.
    """

    wrong = [one for one in overloads if not isinstance(one, (OpOverload, MissingOverload))]
    if wrong or not overloads:
        raise LoweringDefinitionError(
            f"{wrong[0]!r} is not an overload of an operator" if wrong else "lowers() names no overload",
            hint="name one, as in torch.ops.aten.sin.default",
        )

    def register(function: Function) -> Function:
        family = _family(function)
        for overload in overloads:
            if isinstance(overload, MissingOverload):
                _unavailable(into, overload, f"PyTorch {versions.version()} has no such overload")
                continue
            try:
                special, parameters, respelled = _check(function, overload, frozenset(ignores), renamed or {})
            except LoweringDefinitionError as error:
                if versions.is_tested() or not function.__module__.startswith(f"{__package__}."):
                    raise
                _unavailable(
                    into,
                    overload,
                    f"its schema in PyTorch {versions.version()} is not the one that the lowering was"
                    f" written for: {error.message}",
                )
                continue
            lowering = Lowering(
                overload=overload,
                function=function,
                family=family,
                dtypes=frozenset(dtypes),
                gaps=dict(gaps or {}),
                refuses=refuses,
                indices=indices,
                values=tuple(values),
                special=special,
                parameters=parameters,
                renamed=dict(renamed or {}),
                respelled=respelled,
            )
            into.add(lowering)
        return function

    return register


def lowers_higher_order(
    operator: HigherOrderOperator, into: Registry = registry
) -> Callable[[Function], Function]:
    """Register the lowering of a higher-order operator (``cond``, ``while_loop``, ``scan``, …).

    The function takes the operator's arguments, subgraphs as callables of values,
    and ``out``, a tuple of :class:`Spec`.
    """

    def register(function: Function) -> Function:
        into.add(HigherOrderLowering(operator=operator, function=function, family=_family(function)))
        return function

    return register


def decomposes(*overloads: OpOverload, into: Registry = registry) -> Callable[[Function], Function]:
    """Register a decomposition into other ATen operators; it replaces PyTorch's own.

    The function takes the operator's arguments as tensors while the graph is
    traced. Where it returns ``NotImplemented`` the call is kept for its lowering.
    """

    def register(function: Function) -> Function:
        for overload in (one for one in overloads if not isinstance(one, MissingOverload)):
            into.declare(overload, decomposition=function)
        return function

    return register


def _unavailable(into: Registry, overload: Any, reason: str) -> None:
    if into.record(overload).unavailable is None:
        into.declare(overload, unavailable=reason)


def _family(function: Callable[..., Any]) -> str:
    """The module that defines ``function``, without its packages."""
    module = getattr(function, "__module__", None)
    if not isinstance(inspect.unwrap(function), types.FunctionType) or not module:
        raise LoweringDefinitionError(
            f"{function!r} cannot be a lowering: it is not a Python function defined in a module",
            hint="write a function with def, or wrap yours in one",
        )
    return str(module).rpartition(".")[2]


def _check(
    function: Callable[..., Any], overload: OpOverload, ignores: frozenset[str], renamed: Mapping[str, str]
) -> tuple[frozenset[str], tuple[str, ...], dict[str, str]]:
    """Special parameters, those of the schema, and what this PyTorch calls otherwise."""
    schema = schema_of(overload)
    spelled = [argument.name for argument in schema.arguments]
    respelled = {
        theirs: ours for ours, theirs in renamed.items() if theirs in spelled and ours not in spelled
    }
    names = [respelled.get(name, name) for name in spelled]
    known = set(names)
    taken = set(inspect.signature(function).parameters)
    special = frozenset((taken & SPECIAL) - known)
    unknown = taken - known - special
    if unknown:
        raise LoweringDefinitionError(
            f"{_place(function)} takes {sorted(unknown)}, which {overload} does not have",
            hint=f"schema: {schema}",
        )
    missing = known - taken - ignores - IGNORED
    if missing:
        raise LoweringDefinitionError(
            f"{_place(function)} leaves out {sorted(missing)} of {overload}",
            hint="take the parameter, or name it in ignores= and say why",
        )
    unused = taken - _loaded(function)
    if unused:
        raise LoweringDefinitionError(f"{_place(function)} never uses its parameter(s) {sorted(unused)}")
    return special, tuple(name for name in names if name in taken), respelled


def _loaded(function: Callable[..., Any]) -> set[str]:
    """Parameters that the function's code (nested functions included) reads."""
    code = inspect.unwrap(function).__code__
    names = set(code.co_cellvars)
    for instruction in dis.get_instructions(code):
        if instruction.opname.startswith("LOAD_"):
            names.update(
                instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
            )
    return {name for name in names if isinstance(name, str)}


def _place(function: Callable[..., Any]) -> str:
    code = inspect.unwrap(function).__code__
    return f"{function.__module__}.{function.__qualname__} (line {code.co_firstlineno})"


def aten_overloads(names: Iterable[str]) -> list[OpOverload]:
    """The overloads called ``names`` (``"add.Tensor"``) that this PyTorch has; others are left out.

    For operators that some supported PyTorch versions lack.
    """
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        candidate = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if isinstance(candidate, OpOverload):
            found.append(candidate)
    return found
