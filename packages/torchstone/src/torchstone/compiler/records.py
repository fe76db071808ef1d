"""Looks up the record of an operator and describes it, for people and programs that ask about one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..dtypes import DType
from ..lowering import load
from ..lowering.checks import ValueRule
from ..lowering.record import Record
from ..torch_internals.derivatives import formulas
from ..torch_internals.dispatch import (
    DispatchKey,
    has_kernel_for,
    is_composite_implicit,
    is_dispatched,
    python_kernels,
)
from ..torch_internals.fake import PartialRule
from ..torch_internals.operators import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    overload_name,
    schema_of,
)
from .normalize import decompositions


def record(operator: Any) -> Record:
    """Return all that is known about an overload or a higher-order operator."""
    return load().record(operator)


def find_operators(name: str) -> list[Any]:
    """Return the overload ``aten.add.Tensor``, or all overloads of ``aten.add``; empty if there is none."""
    space, _, rest = name.partition(".")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, space, None), packet_name, None) if packet_name else None
    if isinstance(packet, HigherOrderOperator):
        return [] if overload else [packet]
    if packet is None:
        return []
    found = [getattr(packet, one) for one in packet.overloads() if overload in ("", one)]
    return [one for one in found if is_dispatched(one)]


def described(known: Record) -> dict[str, Any]:
    """Return a record as JSON data, without the parts that it does not have."""
    lowering, operator = known.lowering or known.higher_order, known.operator
    found: dict[str, Any] = {"operator": known.name, "compiled": treatment(known)}
    if isinstance(operator, OpOverload):
        found |= {"schema": str(schema_of(operator)), "derivative": derivative(known)}
    if lowering is not None:
        found |= {"family": lowering.family, "documentation": lowering.documentation}
    if known.lowering is not None:
        found |= {
            "dtypes": dtype_names(known.lowering.dtypes),
            "gaps": {dtype.name: reason for dtype, reason in sorted(known.lowering.gaps.items(), key=str)},
            "refuses": known.lowering.refuses and documentation(known.lowering.refuses),
            "renamed": dict(known.lowering.renamed),
        }
    found |= {
        "indices": indices(known),
        "values": [refused_values(rule) for rule in value_rules(known)],
        "arguments": known.arguments and documentation(known.arguments),
        "decomposition": known.decomposition and documentation(known.decomposition),
        "traced_as": [place(one) for kernels in _kernels(known) for one in dict.fromkeys(kernels.values())],
        "shapes": known.shapes and place(known.shapes),
        "capture_rules": {replaced(one): place(rule) for one, rule in known.rules.items()},
    }
    return {part: value for part, value in found.items() if value}


def treatment(known: Record) -> str:
    """Return how a program treats a call of the operator, in words."""
    operator = known.operator
    for reason, text in (
        (known.excluded, "refused: {}"),
        (known.no_effect, "left out: {}"),
        (known.unavailable, "not lowered: {}"),
        (known.eager, "left to eager PyTorch: {}"),
    ):
        if reason is not None:
            return text.format(reason)
    if known.lowering is not None or known.higher_order is not None:
        return "lowered" if known.decomposition is None else "decomposed where it can be, else lowered"
    if known.stand_in is not None:
        return "traced as Torchstone's stand-in"
    if known.decomposition is not None:
        return "decomposed by Torchstone"
    if operator in decompositions():
        return "decomposed by PyTorch"
    if isinstance(operator, OpOverload):
        if is_composite_implicit(operator):
            return "expanded by PyTorch"
        if schema_of(operator).is_mutable:
            return "replaced by its functional form"
    return "refused: no lowering and no decomposition is registered"


def derivative(known: Record) -> str:
    """Return how the operator's gradient is computed, or why there is none, in words."""
    overload = known.operator
    if known.derivative is not None:
        return known.derivative
    if is_composite_implicit(overload):
        return "through its expansion"
    written_in_python = overload.namespace != "aten" and has_kernel_for(overload, DispatchKey.Autograd)
    if written_in_python or DispatchKey.Autograd in python_kernels(overload):
        return "PyTorch's, written in Python"
    theirs = formulas()
    if theirs is None:
        return "unknown: this PyTorch does not ship its formulas"
    if any(argument.is_out for argument in schema_of(overload).arguments):
        return "none: PyTorch differentiates no out= form"
    formula = next((theirs[name] for name in _names_of_formula(overload) if name in theirs), {})
    written = "; ".join(f"{argument}: {formula}" for argument, formula in formula.items())
    return f"PyTorch's, {written}" if written else "none: PyTorch has no formula"


def _names_of_formula(overload: OpOverload) -> list[str]:
    """Return the names of PyTorch's formula to try: the overload's, its in-place form's and its view's."""
    name, suffix = schema_of(overload).name.removeprefix("aten::"), f".{overload_name(overload)}"
    bases = (name, name.removesuffix("_"), f"{name}_", name.removesuffix("_copy"))
    return [f"{base}{suffix}".removesuffix(".default") for base in bases]


def dtype_names(found: Iterable[DType]) -> list[str]:
    """Return the names of dtypes, sorted by kind and width."""
    return [dtype.name for dtype in sorted(found, key=lambda one: (one.kind, one.bits, one.name))]


def indices(known: Record) -> dict[str, Any] | None:
    """Return what the operator does with indices out of range; None if it takes no indices."""
    rule = None if known.lowering is None else known.lowering.indices
    if rule is None:
        return None
    return {"operand": rule.operand, "from_the_end": rule.negative, "out_of_range": rule.effect}


def value_rules(known: Record) -> tuple[ValueRule, ...]:
    """Return the rules that eager PyTorch has for the values of a call."""
    own = () if known.lowering is None else known.lowering.values
    return own if known.assertion is None else (known.assertion,)


def refused_values(rule: ValueRule) -> str:
    """Return PyTorch's message for the values that a rule refuses."""
    return rule.says if isinstance(rule.says, str) else "the message of the call"


def _kernels(known: Record) -> list[Any]:
    return [made for made in (known.stand_in, known.mended and known.mended()) if made]


def documentation(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring, or its module and name if it has none."""
    return (inspect.getdoc(function) or "").partition("\n")[0] or place(function)


def place(function: Any) -> str:
    """Return the module and the name of a function."""
    if isinstance(function, PartialRule):
        function = function.rule
    inner = inspect.unwrap(getattr(function, "func", function))
    return f"{inner.__module__}.{inner.__qualname__}".replace(".<locals>", "")


def replaced(target: Any) -> str:
    """Return the name of the operator, function or method that a capture rule replaces."""
    match target:
        case (owner, str(name)):
            return f"{owner.__name__}.{name}"
        case OpOverload() | OpOverloadPacket():
            return str(target)
    owner = getattr(target, "__objclass__", None)
    module = "torch.Tensor" if owner is not None else getattr(target, "__module__", None) or "torch"
    return f"{module}.{target.__name__}"
