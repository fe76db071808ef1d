"""The registry: the only list of lowerings, and of everything else that is known about operators.

A lowering is a pure function from values to values. It names the ATen overloads
that it implements. Its parameters have the names in their schema, which is
checked when it is registered. In addition, it may take these parameters:

``out``
    a :class:`Spec` (or a tuple of them): the shape and dtype of the result according
    to PyTorch;
``rng``
    a :class:`torchstone.hlo.Rng` of its own (random operators);
``meta``
    the fake tensors of the arguments by parameter name (for strides);
``expand``
    PyTorch's own expansion of this call, if the operator is composite-implicit: a function
    that maps the values of its tensor arguments, in the schema's order, to its results;
``expand_wide``
    like ``expand``, but 16-bit floats are computed in float32.

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
"""Schema parameters that do not affect the values of the result."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Spec:
    """The shape and dtype of one result according to PyTorch."""

    shape: hlo.Shape
    dtype: DType


class Registry:
    """A map from operators to their records. :data:`registry` is the one that the process uses."""

    def __init__(self) -> None:
        self._records: dict[Any, Record] = {}
        self._tables: dict[str, Mapping[Any, Any]] = {}
        self.lost_families: dict[str, str] = {}
        """Families that failed to load as a whole because of an untested PyTorch, and why."""

    def __contains__(self, operator: object) -> bool:
        found = self.record(operator)
        return (found.lowering or found.higher_order) is not None

    def __iter__(self) -> Iterator[Lowering]:
        return iter(sorted(self.table("lowering").values(), key=lambda lowering: lowering.name))

    def __len__(self) -> int:
        return len(self.table("lowering"))

    def record(self, operator: Any) -> Record:
        """Return the record of ``operator``; an empty record if nothing was declared."""
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
        """Return one part of all records that have it, by operator.

        The result is a snapshot: later declarations do not change it.
        """
        return self._tables.get(part, types.MappingProxyType({}))

    def add_rule(self, operator: Any, replaced: Any, rule: Callable[..., Any]) -> None:
        """Add a capture rule: while a model is captured, ``rule`` runs in place of ``replaced``."""
        rules = self._records.setdefault(operator, Record(operator)).rules
        rules[replaced] = rule
        self._note("rules", operator, rules)

    def get(self, overload: Any) -> Lowering | None:
        return self.record(overload).lowering

    def higher_order(self, operator: Any) -> Callable[..., Any] | None:
        """Return the lowering of a higher-order operator, or None; subgraphs are callables of values."""
        found = self.record(operator).higher_order
        return None if found is None else found.function

    def higher_order_lowerings(self) -> list[HigherOrderLowering]:
        """All lowerings of higher-order operators, by name."""
        return sorted(self.table("higher_order").values(), key=lambda lowering: lowering.name)

    def overloads(self) -> frozenset[Any]:
        return frozenset(self.table("lowering"))

    @property
    def decompositions(self) -> Mapping[OpOverload, Callable[..., Any]]:
        """Functions that rewrite calls to other ATen operators before lowering (:func:`decomposes`)."""
        return self.table("decomposition")

    @property
    def unavailable(self) -> dict[str, str]:
        """Operators that are not lowered because this PyTorch lacks them or declares them differently.

        Maps their names, and those of families that failed to load, to the reasons.
        """
        lacking = self.table("unavailable").items()
        return {str(operator): reason for operator, reason in lacking} | self.lost_families

    def add(self, lowering: Lowering | HigherOrderLowering) -> None:
        """Add a lowering; raise :class:`LoweringDefinitionError` if the operator already has one."""
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

    ``ignores`` names schema parameters that the function does not take although they matter for other
    operators (say why in a comment). Layout, device, pinning and memory format never change values and are
    always ignored. ``refuses`` returns why a call with the given arguments cannot be lowered, or None.
    ``indices`` and ``values`` are rules that eager PyTorch checks when a call runs (see :mod:`.checks`).
    ``renamed`` maps a parameter to the name that it has in some other supported versions of PyTorch.

    Overloads that this PyTorch lacks are left out. Torchstone's own lowerings are also left out if an
    untested PyTorch has changed their schema. ``Registry.unavailable`` says why.

    Raises :class:`LoweringDefinitionError` if the function is not a Python function defined in a module, if
    its parameters differ from the schema's, if it never uses one of them, or if an overload is registered
    twice.
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

    The function takes the operator's arguments, with subgraphs as callables of values,
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
    """Return the name of the module that defines ``function``, without its packages."""
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
    """Check the function's parameters against the schema.

    Return its special parameters, its schema parameters, and a map from the names that this PyTorch uses to
    the names that the function uses, where they differ.
    """
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
    """Return the names that the function's code reads, including parameters that nested functions read."""
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
    """Return the overloads called ``names`` (``"add.Tensor"``) that this PyTorch has; others are left out.

    For operators that some supported PyTorch versions lack.
    """
    found = []
    for name in names:
        packet, _, overload = name.partition(".")
        candidate = getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)
        if isinstance(candidate, OpOverload):
            found.append(candidate)
    return found
