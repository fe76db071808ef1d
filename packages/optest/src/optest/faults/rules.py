"""Rules that say in which operators a fault has no effect, each with its reason.

A rule reads the descriptor, never an operator's results: the operator's definition must imply
that the fault changes no result. All other faults count, and if the suite misses one, the suite
must be fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..core.case import BackendTarget, TestCase
from ..core.dtypes import kind_of
from ..errors import OptestError
from ..operators.descriptor import OperatorDescriptor
from .catalogue import IGNORES, Fault, is_floating, usual_value
from .reductions import reduced_axis


@dataclass(frozen=True)
class Exclusion:
    """A rule: the kind of faults ``fault`` does not apply to operators for which ``holds`` returns True."""

    fault: str
    reason: str
    holds: Callable[[OperatorDescriptor, str], bool]


def excluded(descriptor: OperatorDescriptor, fault: Fault) -> str | None:
    """Return why ``fault`` cannot change a result of the operator; None if it can."""
    for rule in EXCLUSIONS:
        if fault.name.split(":")[0] == rule.fault and rule.holds(descriptor, fault.name):
            return rule.reason
    return None


def cases_of(descriptor: OperatorDescriptor, seed: int = 0) -> list[TestCase]:
    """Return the built-in suite's cases of one operator; float32 ones, which show most faults, come first."""
    dtypes = sorted(descriptor.dtypes, key=lambda one: "float32" not in one)
    return [
        TestCase(
            descriptor,
            one,
            setup.shapes,
            descriptor.complete_attributes(setup.attributes),
            BackendTarget("faulty"),
            None,
            seed,
            note=setup.note,
        )
        for one in dtypes
        for setup in descriptor.setups
    ]


def _output_dtypes(descriptor: OperatorDescriptor) -> set[str]:
    return {name for case in cases_of(descriptor) for name in case.output_dtypes}


def _unsigned(descriptor: OperatorDescriptor, fault: str) -> bool:
    return all(np.dtype(name).kind in "bu" for name in _output_dtypes(descriptor))


def _scalar(descriptor: OperatorDescriptor, fault: str) -> bool:
    return all(
        int(np.prod(shape)) <= 1 for case in cases_of(descriptor) for shape in case.output_shapes.values()
    )


def _exact(descriptor: OperatorDescriptor, fault: str) -> bool:
    return not any(map(is_floating, _output_dtypes(descriptor)))


def _few_bits(descriptor: OperatorDescriptor, fault: str) -> bool:
    return "few-bits" in descriptor.tags


def _in_order(descriptor: OperatorDescriptor, fault: str) -> bool:
    return descriptor.name in ("reshape", "flatten", "squeeze", "unsqueeze")


def _converts(descriptor: OperatorDescriptor, fault: str) -> bool:
    return descriptor.name == "cast"


def _no_reduction(descriptor: OperatorDescriptor, fault: str) -> bool:
    return all(reduced_axis(case) is None for case in cases_of(descriptor))


def _no_float_input(descriptor: OperatorDescriptor, fault: str) -> bool:
    return not any(kind_of(np.dtype(name)) == "float" for one in descriptor.dtypes for name in one)


def _nan_open(descriptor: OperatorDescriptor, fault: str) -> bool:
    return not descriptor.tags & {"edge:nan", "edge:nan-only", "data-movement"}


def _no_narrow_integers(descriptor: OperatorDescriptor, fault: str) -> bool:
    """Whether no result is an integer narrower than int64, in which saturation is computed."""
    return not any(
        kind_of(np.dtype(name)) == "int" and name != "int64"
        for case in cases_of(descriptor)
        for name in case.output_dtypes
    )


def _stays_in_range(descriptor: OperatorDescriptor, fault: str) -> bool:
    return bool(descriptor.tags & {"data-movement", "bounded"}) or descriptor.category in _CHOOSING


_CHOOSING = ("comparison", "sorting", "pooling")
"""Categories whose integer results are elements of the input or indices into it."""


def _zero_alike(descriptor: OperatorDescriptor, fault: str) -> bool:
    return descriptor.name in ("isinf", "signbit", "sign", "acosh")


def _stable(descriptor: OperatorDescriptor, fault: str) -> bool:
    return descriptor.name in ("sort", "argsort") and fault == f"{IGNORES}:stable"


def _never_fits(descriptor: OperatorDescriptor, fault: str) -> bool:
    """Whether the shape rule rejects the usual value in every setup that has another value; there is one."""
    name = fault.partition(":")[2]
    usual = usual_value(descriptor, name)
    completed = [(one.shapes, descriptor.complete_attributes(one.attributes)) for one in descriptor.setups]
    others = [(shapes, attributes) for shapes, attributes in completed if attributes[name] != usual]
    for shapes, attributes in others:
        try:
            descriptor.check_shapes(shapes, {**attributes, name: usual})
        except OptestError:
            continue
        return False
    return bool(others)


def _one_choice(descriptor: OperatorDescriptor, fault: str) -> bool:
    return len(descriptor.attributes[fault.partition(":")[2]].choices) == 1


EXCLUSIONS: tuple[Exclusion, ...] = (
    Exclusion("wrong-sign", "bools and unsigned integers have no sign", _unsigned),
    Exclusion("off-by-one", "one result cannot be in another's place", _scalar),
    Exclusion("reversed-axis", "one result has no order", _scalar),
    Exclusion("copies-input", "the input's elements in their order are the result", _in_order),
    Exclusion("copies-input", "the input converted to another dtype is the result", _converts),
    Exclusion("truncates-reduction", "nothing is reduced", _no_reduction),
    Exclusion("wrong-rounding", "no result is rounded: all are integers or bools", _exact),
    Exclusion("wrong-rounding", "every result has few significant bits by definition", _few_bits),
    Exclusion("swaps-nan", "no input can hold NaN", _no_float_input),
    Exclusion("swaps-nan", "what NaN gives is left open", _nan_open),
    Exclusion("swaps-nan", "NaN gives what 0 gives, by definition", _zero_alike),
    Exclusion("saturates", "there is no integer result narrower than 64 bits", _no_narrow_integers),
    Exclusion("saturates", "results are elements of the input, or places, or bounded by it", _stays_in_range),
    Exclusion(IGNORES, "the attribute has one allowed value", _one_choice),
    Exclusion(IGNORES, "a stable order is right where any order of equals is", _stable),
    Exclusion(IGNORES, "the usual value never fits the shapes of another one", _never_fits),
)
