"""The accuracy rule: the error of a result may be at most k times that of a trusted result, the control.

Take element i with reference t_i. Let u_i be one ULP of the compared dtype at t_i, E the control's largest
error and R its largest error in ULPs, both over the whole array. The element passes if

    error_i ≤ min(k·E + u_i,  16·(k·R + 1)·u_i)

The largest of n rounding errors is a matter of luck. Therefore E is at least the expected value of the
largest of n normal errors with the control's root mean square (Blom 1958).

Several trusted results, which differ only by rounding, show more than one. E and R are then the largest over
all of them, and n is at least 1,000, so that a result with few elements is not judged by a few errors that
happened to be small.

The first bound is the actual rule. It allows at least one ULP, since a control that happens to be exact
proves nothing about rounding. The second bound limits the error relative to the element's own size, so that
the error of a large element does not excuse a wrong sign in a small one. It is wide (16) because the relative
error of an element that cancels to almost zero is a matter of luck, for the control as well.

If each element is computed by itself, there is no sum whose size could explain an error in a small element.
Such results may be judged ``apiece``, with the control's own error at the element::

    error_i ≤ k·e_i + u_i

If there are bounds, an element also passes if error_i is within its own bound, which comes from the operator
and not from a control (see ``roundoff``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from .comparison import Accuracy
from .elements import (
    Array,
    Furthest,
    blocks,
    errors,
    insist_on_zeros,
    same,
    sign_differences,
    wide_dtype,
    widened,
)
from .tolerance import Tolerance
from .ulp import ulp_size

LEAST = 1000
"""The least n, the number of errors, if there are several trusted results."""
RELATIVE_SLACK = 16.0
"""The factor of 16 in the second bound, which limits the error relative to an element's own size."""


def judge_accuracy(
    actual: Array,
    expected: Array,
    reference: Array,
    controls: Sequence[Array],
    tolerance: Tolerance,
    *,
    bound: Array | None,
    everywhere: bool,
    apiece: bool = False,
) -> tuple[Accuracy, int | None]:
    """Apply the rule to ``actual``; return the result and the flat offset of the worst violation, or None.

    All arrays have the same shape. ``actual`` and ``expected`` have the same floating or complex dtype, and
    ``reference`` a wider one. Elements within ``tolerance`` of ``expected`` pass without the rule unless
    ``everywhere``. If the error or the reference is not finite, the element passes only if its value is that
    of the first control or of the rounded reference. A wrong sign of zero always fails if the tolerance
    requires signed zeros.
    """
    dtype = expected.dtype
    wide = np.result_type(wide_dtype(dtype), reference.dtype)
    control_error = control_ulps = error = ulps = squares = 0.0
    for control in controls:
        for _, (trusted, truth) in blocks(control, reference):
            one_error, size = _errors_and_ulps(trusted, truth, wide, dtype)
            control_error = max(control_error, _largest(one_error))
            control_ulps = max(control_ulps, _largest(one_error / size))
            squares += float(np.sum(np.square(one_error), where=np.isfinite(one_error)))
    count = reference.size * len(controls)
    expected_error = max(
        control_error, _expected_largest(squares, count, count if len(controls) == 1 else max(count, LEAST))
    )
    factor, violations, excused, furthest = tolerance.factor, 0, 0, Furthest()
    bounds = np.broadcast_to(np.zeros(()), expected.shape) if bound is None else bound
    absolute_limit = factor * expected_error
    relative_limit = RELATIVE_SLACK * (factor * control_ulps + 1)
    for offset, (got, want, truth, most, *own) in blocks(actual, expected, reference, bounds, *controls):
        wide_got, wide_want = widened(got), widened(want)
        one_error, size = _errors_and_ulps(got, truth, wide, dtype)
        if apiece:
            theirs = np.max([_errors_and_ulps(one, truth, wide, dtype)[0] for one in own], axis=0)
            limit = factor * np.where(np.isfinite(theirs), theirs, 0.0) + size
        else:
            limit = np.minimum(absolute_limit + size, relative_limit * size)
        beyond = one_error - limit
        special = ~np.isfinite(one_error)
        if special.any():
            accepted = [widened(other.astype(dtype)) for other in (own[0], truth)]
            agree = np.any([same(wide_got, other, tolerance) for other in accepted], axis=0)
            beyond[special] = np.where(agree, -np.inf, np.inf)[special]
        if not everywhere:
            beyond[errors(wide_got, wide_want, tolerance)[1] <= 0] = -np.inf
        within = (beyond > 0) & (one_error <= most)
        excused += int(np.count_nonzero(within))
        beyond[within] = -np.inf
        if tolerance.signed_zero:
            insist_on_zeros(beyond, sign_differences(wide_got, wide_want)[1])
        violations += int(np.count_nonzero(beyond > 0))
        furthest.offer(beyond, offset)
        error, ulps = max(error, _largest(one_error)), max(ulps, _largest(one_error / size))
    judged = Accuracy(factor, error, control_error, ulps, control_ulps, violations, excused)
    return judged, furthest.offset if violations else None


def _errors_and_ulps(
    values: Array, truth: Array, wide: np.dtype[Any], dtype: np.dtype[Any]
) -> tuple[Array, Array]:
    """Return |values − truth|, computed in ``wide``, and one ULP of ``dtype`` at each truth."""
    truth = truth.astype(wide, copy=False)
    return np.abs(values.astype(wide, copy=False) - truth), ulp_size(np.abs(truth), dtype)


def _expected_largest(squares: float, count: int, most: int) -> float:
    """Return the expected largest magnitude of ``most`` normal numbers; 0 if unknown.

    Their spread is that of ``count`` numbers whose sum of squares is ``squares``.
    """
    if count == 0 or not math.isfinite(squares):
        return 0.0
    below = (most - 0.375) / (most + 0.25)
    return math.sqrt(squares / count) * NormalDist().inv_cdf((1 + below) / 2)


def _largest(values: Array) -> float:
    return float(np.max(values, where=np.isfinite(values), initial=0))
