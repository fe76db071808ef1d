"""Bounds on the error that rounding alone can cause in a correct result, derived from the reference.

The tolerances of ``tolerance`` suit single operations. An operator made of many operations has a ``rounding``
rule in its descriptor. An element that misses both the tolerance and the accuracy rule still counts as
correct if its error against the reference is within the bound of that rule. Bounds follow from the inputs and
the unit roundoff, never from the results of a backend.

u is the unit roundoff of the results' dtype, ε/2. v is the unit roundoff of the dtype in which sums are kept:
float32 for narrower floats, else the results' dtype, so that v = u. t is the reference.

``Sums``
    Every result is a sum of n products of one element of each factor (Higham, *Accuracy
    and Stability of Numerical Algorithms*, 2nd ed., §3.1 and §3.5; for long sums Higham
    and Mary, SIAM J. Sci. Comput. 41(5), 2019, Theorem 2.4 with λ = 8)::

        |error| ≤ min(n, λ√n)·v/(1 − nv) · f(|x|)  +  3u·(|t| + |a|)

    f(|x|) is the reference for the absolute values of the inputs, and n the reference for inputs of ones. The
    second term accounts for storing the product, the scaled product, the scaled addend a and the result.
    ``in_place``: the running sum is kept in the results' dtype, so v = u. This is the rule for operators that
    add into a tensor, where each addition is stored. A complex product consists of four real ones, so v is
    replaced by 2√2·v (§3.6).

``Stages``
    The result is computed in at most ``count`` steps. Each step rounds its result, or equivalently its
    operands, to the results' dtype once (mixed forward-backward stability, §1.5)::

        |error| ≤ count·u · (|t| + max |f(x(1 + hδ)) − f(x)|/h)

    where δ are 64 vectors of random signs. If few inputs matter, this is the largest change to first order;
    if many do, it is about 2½ standard deviations of the change. An input that is ``shifted`` by s changes to
    x + hδ(|x| + s).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from .dtypes import kind_of, native, real_part
from .reference import reference_outputs

if TYPE_CHECKING:
    from .case import TestCase

Array = NDArray[Any]

LAMBDA = 8.0
"""λ: the error of a sum of n terms exceeds λ√n·u with probability 2·exp(−λ²/2), which is 3e-14."""
PROBES = 64
STEP = 2.0**-20
"""h: far above the roundoff of the reference's float64, and far below 1."""
_FACTORS = ("alpha", "beta")


@dataclass(frozen=True, slots=True)
class Sums:
    """The rule for sums of products; ``addend`` names the input that is added to the sum, if there is one."""

    addend: str | None = None
    in_place: bool = False


@dataclass(frozen=True, slots=True)
class Stages:
    """The rule for a few steps, each rounded to the results' dtype.

    ``shifted`` maps an input to the size of a number that the first step adds to it: the sum is rounded in
    proportion to both.
    """

    count: int = 4
    shifted: Mapping[str, float] = field(default_factory=dict)


Rounding = Sums | Stages


def rule_of(case: TestCase) -> Rounding | None:
    """Return the operator's rule, or ``Stages(1)`` for an elementwise one, or None if there is none."""
    own = case.descriptor.rounding
    return own or (Stages(1) if "elementwise" in case.descriptor.tags else None)


def rounding_bounds(
    case: TestCase, rule: Rounding, inputs: Sequence[Array], wide: Sequence[Array]
) -> tuple[Array, ...]:
    """Return, for each output, the largest errors that rounding can explain by ``rule``.

    ``wide`` is the reference for ``inputs``. The bounds have the shapes of the outputs. They are 0 for
    integers and where they would not be finite.
    """
    with np.errstate(all="ignore"):
        find = _sums if isinstance(rule, Sums) else _stages
        bounds = find(case, rule, inputs, wide)  # type: ignore[arg-type]  # the rule's own function
        return tuple(np.where(np.isfinite(one), one, 0.0) for one in bounds)


def _sums(case: TestCase, rule: Sums, inputs: Sequence[Array], wide: Sequence[Array]) -> list[Array]:
    absolute = {name: abs(case.attributes[name]) for name in _FACTORS if name in case.attributes}
    sizes = _reference(case, [_changed(one, np.abs) for one in inputs], **absolute)
    terms = _reference(case, [_changed(one, np.ones_like) for one in inputs], **dict.fromkeys(absolute, 1))
    addends = [np.zeros_like(one) for one in wide]
    if rule.addend is not None:
        kept = [
            one if name == rule.addend else _changed(one, np.zeros_like)
            for name, one in zip(case.descriptor.inputs, inputs, strict=True)
        ]
        addends = list(_reference(case, kept))
    bounds = []
    for truth, size, count, added, dtype in zip(wide, sizes, terms, addends, case.output_dtypes, strict=True):
        stored = unit_roundoff(dtype)
        kept_in = stored if rule.in_place else min(stored, unit_roundoff("float32"))
        kept_in *= 2 * math.sqrt(2) if kind_of(np.dtype(dtype)) == "complex" else 1
        # A mean divides its n terms by n, so the sum of ones does not show n.
        n = np.maximum(np.abs(count), inputs[0].size / max(truth.size, 1))
        growth = np.minimum(n, LAMBDA * np.sqrt(n)) * kept_in / np.maximum(1 - n * kept_in, 0.5)
        bounds.append(growth * np.abs(size) + 3 * stored * (np.abs(truth) + np.abs(added)))
    return bounds


def _stages(case: TestCase, rule: Stages, inputs: Sequence[Array], wide: Sequence[Array]) -> list[Array]:
    shifts = [rule.shifted.get(name, 0.0) for name in case.descriptor.inputs]
    changes = stage_changes(partial(_reference, case), inputs, shifts)
    return [
        rule.count * unit_roundoff(dtype) * (np.abs(truth) + change)
        for truth, change, dtype in zip(wide, changes, case.output_dtypes, strict=True)
    ]


def stage_changes(
    function: Callable[[Sequence[Array]], Sequence[Array]], inputs: Sequence[Array], shifts: Sequence[float]
) -> list[Array]:
    """Return max |f(x(1 + hδ)) − f(x)|/h of ``Stages``, one array for each output of ``function``.

    ``function`` gets floating-point inputs in at least float64, and all other inputs unchanged.
    """
    rng = np.random.default_rng(0)

    def moved(values: Array, shift: float) -> Array:
        return values + STEP * rng.choice((-1.0, 1.0), values.shape) * (np.abs(values) + shift)

    centre = function([_changed(one, np.positive) for one in inputs])
    changes = [np.zeros(one.shape) for one in centre]
    for _ in range(PROBES):
        there = function(
            [_changed(one, partial(moved, shift=shift)) for one, shift in zip(inputs, shifts, strict=True)]
        )
        for i, (one, base) in enumerate(zip(there, centre, strict=True)):
            changes[i] = np.fmax(changes[i], np.abs(one - base).astype(np.float64))
    return [change / STEP for change in changes]


def _reference(case: TestCase, inputs: Sequence[Array], **attributes: Any) -> tuple[Array, ...]:
    return reference_outputs(replace(case, attributes={**case.attributes, **attributes}), inputs)


def _changed(values: Array, change: Callable[[Array], Array]) -> Array:
    """Apply ``change`` to a floating-point input, in at least float64; return other inputs unchanged."""
    if kind_of(values.dtype) not in ("float", "complex"):
        return values
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    return np.asarray(change(values.astype(wide)))


def unit_roundoff(dtype: str) -> float:
    real = real_part(native(np.dtype(dtype)))
    return float(ml_dtypes.finfo(real).eps) / 2 if kind_of(real) == "float" else 0.0
