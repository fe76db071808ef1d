"""The verdict on a case: its outputs, its tolerances, its bounds on rounding errors.

Everything that judges arrays of a case comes through here: runner, tests, mutation test.
The comparison of two arrays itself is in ``comparator``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .comparator import compare
from .comparison import Comparison
from .dtypes import is_narrow, kind_of
from .roundoff import rounding_bounds, rule_of
from .tolerance import EXACT, Tolerance

if TYPE_CHECKING:
    from .case import TestCase

Array = NDArray[Any]


def judge(
    case: TestCase,
    actual: Sequence[Array],
    expected: Sequence[Array],
    wide: Sequence[Array] | None,
    inputs: Callable[[], Sequence[Array]],
) -> list[Comparison]:
    """One comparison per output of ``case``.

    ``wide`` is the unrounded reference, None if the expected outputs came from elsewhere.
    Results that are elements of the inputs are exact; those of an operator that is tagged
    ``exact`` are so but for the sign of zero. Narrow floats of an elementwise operator are judged
    apiece. ``inputs`` gives the case's inputs as the reference saw them; it is called
    only where such a result, or one of an operator with a ``rounding`` rule, misses tolerance and
    accuracy rule. A tolerance that the case was given has no such second chance.
    """
    tags, given, names = case.descriptor.tags, case.tolerance is not None, case.output_dtypes
    truths = [None] * len(expected) if wide is None else wide
    pairs = list(zip(actual, expected, truths, names, strict=True))
    if "data-movement" in tags and not given:
        return [compare(got, want, mode="exact") for got, want, _, _ in pairs]
    signed = {"signed_zero": True} if "signed-zero" in tags else {}
    if "exact" in tags and not given:
        return [compare(got, want, _for(want, EXACT, signed)) for got, want, _, _ in pairs]
    apiece = ["elementwise" in tags and is_narrow(np.dtype(name)) for name in names]

    def compared(place: int, bound: Array | None = None) -> Comparison:
        got, want, truth, name = pairs[place]
        tolerance = case.tolerance or _for(want, case.descriptor.tolerance(name), signed)
        return compare(got, want, tolerance, reference=truth, bound=bound, apiece=apiece[place])

    found = [compared(place) for place in range(len(pairs))]
    rule = rule_of(case)
    missed = [
        place
        for place, one in enumerate(found)
        if not one.passed and one.accuracy is not None and (apiece[place] or case.descriptor.rounding)
    ]
    if wide is None or given or rule is None or not missed:
        return found
    bounds = rounding_bounds(case, rule, inputs(), wide)
    for place in missed:
        found[place] = compared(place, bounds[place])
    return found


def _for(expected: Array, tolerance: Tolerance, signed: Mapping[str, bool]) -> Tolerance:
    """``tolerance``, and the sign of zero where it is ``signed``: in real numbers."""
    return replace(tolerance, **signed) if kind_of(expected.dtype) == "float" else tolerance
