"""Rules for faults that cannot matter, by the definition of the operator, each with its reason.

A rule reads the operator's name, schema and calls, but never the outcome of the test: that a fault
went unnoticed is no reason to exclude it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...lowering import Lowering
from ...torch_internals.operators import schema_of
from .broken import expands
from .catalogue import ABOUT_ARGUMENTS, Fault


@dataclass(frozen=True)
class Exclusion:
    """A rule: faults of these kinds do not apply to lowerings for which ``holds`` returns true."""

    faults: frozenset[str]
    reason: str
    holds: Callable[[Lowering, Fault], bool]


def excluded(lowering: Lowering, fault: Fault) -> str | None:
    """Return why ``fault`` cannot change a result of the operator; None if it can."""
    for rule in EXCLUSIONS:
        if fault.kind in rule.faults and rule.holds(lowering, fault):
            return rule.reason
    return None


def has_parameter(function: Callable[..., Any], fault: Fault) -> bool:
    """Whether callers of ``function`` can set what ``fault`` changes; True if its signature is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    name = fault.name.partition(":")[2]
    return any(one.name == name or one.kind is one.VAR_KEYWORD for one in parameters)


def packet_of(lowering: Lowering) -> str:
    """Return the operator's name without namespace and overload: ``add``."""
    return schema_of(lowering.overload).name.partition("::")[2]


def _named(*names: str) -> Callable[[Lowering, Fault], bool]:
    chosen = frozenset(names)
    return lambda lowering, fault: packet_of(lowering) in chosen


_ZERO = ("zeros", "zeros_like", "new_zeros", "zero", "_efficientzerotensor")
_ONE = ("ones", "ones_like", "new_ones")
_FILLED = ("full", "full_like", "new_full", "fill", "scalar_tensor")

_SYMMETRIC = (
    "add", "mul", "eq", "ne", "maximum", "minimum", "fmax", "fmin", "hypot", "logaddexp", "logaddexp2",
    "gcd", "lcm", "dot", "vdot", "dist", "mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss",
    "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or", "logical_xor",
    "__and__", "__or__", "__xor__",
)  # fmt: skip

_FEW_BITS = ("ceil", "floor", "round", "trunc", "sign", "sgn", "heaviside", *_ONE, "eye")


_TRUTH = (
    "logical_not", "logical_and", "logical_or", "logical_xor", "any", "all", "nonzero", "nonzero_static",
    "count_nonzero",
)  # fmt: skip

_NAN_LIKE_ZERO = ("isinf", "isposinf", "isneginf", "signbit", "sign", "sgn", "acosh", "nan_to_num")


def _expanded(lowering: Lowering, fault: Fault) -> bool:
    return fault.arguments is not None and expands(lowering)


_PLACES = frozenset({"off-by-one", "reversed-axis"})

EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion(
        frozenset({"wrong-sign", "drops-last", "wrong-rounding"}), "the result is zero", _named(*_ZERO)
    ),
    Exclusion(_PLACES, "all elements are equal", _named(*_ZERO, *_ONE, *_FILLED)),
    Exclusion(frozenset({"wrong-rounding"}), "every result has few significant bits", _named(*_FEW_BITS)),
    Exclusion(
        frozenset({"narrow-operands", "swaps-nan"}),
        "the operand's values do not matter",
        _named("zeros_like", "new_zeros", "ones_like", "new_ones", "full_like", "new_full"),
    ),
    Exclusion(frozenset({"narrow-operands"}), "operands count as true or false", _named(*_TRUTH)),
    Exclusion(frozenset({"swaps-nan"}), "NaN gives what 0 gives, by definition", _named(*_NAN_LIKE_ZERO)),
    Exclusion(frozenset({"swapped-operands"}), "the operator is symmetric", _named(*_SYMMETRIC)),
    Exclusion(frozenset(ABOUT_ARGUMENTS), "PyTorch's own expansion of the call has the arguments", _expanded),
)
