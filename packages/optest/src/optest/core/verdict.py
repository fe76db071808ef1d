"""The verdict on a case: its outputs, its tolerances, its bounds on rounding errors.

Everything that judges arrays of a case comes through here: runner, tests, mutation test.
The comparison of two arrays itself is in ``comparator``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .comparator import compare
from .comparison import Comparison
from .roundoff import rounding_bounds

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
    ``inputs`` gives the case's inputs as the reference saw them; it is called only where an
    output of an operator with a ``rounding`` rule misses tolerance and accuracy rule. A
    tolerance that the case was given has no such second chance.
    """
    tolerances = [case.tolerance or case.descriptor.tolerance(dtype) for dtype in case.output_dtypes]
    truths = [None] * len(expected) if wide is None else wide
    found = [
        compare(got, want, tolerance, reference=truth)
        for got, want, tolerance, truth in zip(actual, expected, tolerances, truths, strict=True)
    ]
    missed = [i for i, one in enumerate(found) if not one.passed and one.accuracy is not None]
    if wide is None or case.tolerance is not None or case.descriptor.rounding is None or not missed:
        return found
    bounds = rounding_bounds(case, inputs(), wide)
    for i in missed:
        found[i] = compare(actual[i], expected[i], tolerances[i], reference=wide[i], bound=bounds[i])
    return found
