"""The verdict on a case, from its outputs, its tolerances and its bounds on rounding errors.

The runner, the tests and the mutation test all use this to judge the arrays of a case. ``comparator``
compares two arrays.
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
    """Return one comparison per output of ``case``.

    ``wide`` is the unrounded reference, or None if the expected outputs came from elsewhere. Unless the case
    has a tolerance of its own, results of an operator tagged ``data-movement`` must be exact, and those of an
    operator tagged ``exact`` must be exact except for the sign of zero. Narrow floats of an elementwise
    operator are judged apiece.

    If a result that is judged apiece, or one of an operator with a ``rounding`` rule, misses both the
    tolerance and the accuracy rule, it is judged again with bounds on rounding errors. Only then is
    ``inputs`` called, which returns the case's inputs as the reference saw them. A case with a tolerance of
    its own is not judged again.
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
    """Return ``tolerance`` with the changes of ``signed``, which apply to real floating-point dtypes only."""
    return replace(tolerance, **signed) if kind_of(expected.dtype) == "float" else tolerance
