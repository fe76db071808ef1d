"""The only comparator, which gives the verdict on one array.

:func:`compare` is a pure function of NumPy arrays, also with the dtypes of ml_dtypes. The tolerances of
operators are in ``tolerance``, the records in ``comparison``, and nested outputs in ``trees``.

Three modes:

``allclose``
    Every element is within the tolerance or, if a ``reference`` is given, satisfies the accuracy rule. With
    eager PyTorch's float64 result as ``reference`` and its result in the dtype as ``control``, an element
    passes by the default tolerance or, failing that, if its error against float64 is at most 2 × eager's. A
    ``bound`` per element (see ``roundoff``) excuses errors against the reference up to that bound.
``accuracy``
    Every element satisfies the accuracy rule (see ``accuracy``).
``exact``
    Every element has the same value. −0.0 and +0.0 are different; all NaNs are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from .accuracy import judge_accuracy
from .comparison import Accuracy, Comparison, Mode, Rule, Worst
from .dtypes import kind_of, native
from .elements import (
    Array,
    Furthest,
    blocks,
    errors,
    insist_on_zeros,
    sign_differences,
    widened,
)
from .tolerance import EXACT, Tolerance, default_tolerance
from .ulp import ulp_distance


@np.errstate(over="ignore", invalid="ignore")  # infinities and NaNs are expected
def compare(
    actual: ArrayLike,
    expected: ArrayLike,
    tolerance: Tolerance | None = None,
    *,
    reference: ArrayLike | None = None,
    control: ArrayLike | None = None,
    others: Sequence[ArrayLike] = (),
    bound: ArrayLike | None = None,
    apiece: bool = False,
    mode: Mode = "allclose",
) -> Comparison:
    """Judge ``actual`` against ``expected``, element by element.

    Both must have the same shape (nothing broadcasts) and the same dtype (byte order and strides do not
    matter). A difference in either is a failed comparison, not an exception. ``tolerance`` is the dtype's
    default if None; integers and bools are always exact.

    ``reference`` is the true result in a wider dtype, ``control`` a trusted result in the compared dtype
    (``expected`` if None), and ``others`` are more trusted results, all of the expected shape. They are
    ignored in mode ``exact`` and for integers and bools. ``bound``, of the same shape, counts only in mode
    ``allclose`` with a reference. With ``apiece``, the accuracy rule judges each element by the control's
    error at that element.

    Raises ``TypeError`` for a dtype that cannot be compared. Raises ``ValueError`` for an unknown mode, for
    ``accuracy`` without a reference, and for a reference, control or bound that does not fit ``expected``.
    """
    if mode not in get_args(Mode):
        raise ValueError(f"unknown mode {mode!r}; there are {', '.join(get_args(Mode))}")
    actual, expected = np.asarray(actual), np.asarray(expected)
    whole = kind_of(expected.dtype) in ("bool", "int")
    exact = whole or mode == "exact"
    tolerance = EXACT if whole else tolerance or default_tolerance(expected.dtype)
    if exact and not whole:
        tolerance = replace(tolerance, rtol=0.0, atol=0.0, signed_zero=True)
    truth, trusted = None, []
    if not exact and reference is not None:
        truth = _companion("reference", reference, expected)
        trusted = [
            _companion("control", one, expected)
            for one in (expected if control is None else control, *others)
        ]
    elif not exact and mode == "accuracy":
        raise ValueError("mode accuracy needs a reference: the result in a wider dtype")
    dtypes = native(actual.dtype).name, native(expected.dtype).name
    found = Comparison(mode, tolerance, None, actual.shape, expected.shape, *dtypes)
    if not found.same_form:
        return found

    total = _tally_integers(actual, expected) if whole else _tally_floats(actual, expected, tolerance)
    rule: Rule | None = None if total.mismatches else "exact" if exact else "tolerance"
    worst = total.furthest.offset
    accuracy: Accuracy | None = None
    everywhere = mode == "accuracy"
    if truth is not None and (everywhere or total.mismatches):
        allowed = None if bound is None or everywhere else _companion("bound", bound, expected)
        accuracy, violation = judge_accuracy(
            actual, expected, truth, trusted, tolerance, bound=allowed, everywhere=everywhere, apiece=apiece
        )
        rule = "accuracy" if accuracy.passed else None
        worst = worst if violation is None else violation
    return replace(
        found,
        passed_by=rule,
        count=expected.size,
        mismatches=total.mismatches,
        max_abs=total.max_abs,
        max_rel=total.max_rel,
        max_ulp=None if whole else total.max_ulp,
        nan_mismatches=total.nans,
        inf_mismatches=total.infs,
        sign_mismatches=total.signs,
        signed_zero_mismatches=total.zeros,
        worst=None if worst is None else _worst(actual, expected, worst),
        accuracy=accuracy,
    )


@dataclass(slots=True)
class _Tally:
    """Metrics summed over blocks."""

    mismatches: int = 0
    max_abs: float = 0
    max_rel: float = 0.0
    max_ulp: int = 0
    nans: int = 0
    infs: int = 0
    signs: int = 0
    zeros: int = 0
    furthest: Furthest = field(default_factory=Furthest)


def _tally_integers(actual: Array, expected: Array) -> _Tally:
    """Tally integers without converting them to floats, to keep extremes of int64 and uint64 distinct."""
    total = _Tally()
    for offset, (got, want) in blocks(actual, expected):
        different = got != want
        if not different.any():
            continue
        got, want = _widest_integer(got), _widest_integer(want)
        # The distance of two int64 needs 64 bits: subtract modulo 2**64, larger minus smaller.
        distance = np.maximum(got, want).view(np.uint64) - np.minimum(got, want).view(np.uint64)
        size = np.abs(want.astype(np.float64))
        total.mismatches += int(np.count_nonzero(different))
        total.max_abs = max(total.max_abs, int(distance.max()))
        total.max_rel = max(total.max_rel, _largest_relative(distance, size))
        total.signs += int(np.count_nonzero(((got < 0) != (want < 0)) & (got != 0) & (want != 0)))
        total.furthest.offer(distance, offset)
    return total


def _tally_floats(actual: Array, expected: Array, tolerance: Tolerance) -> _Tally:
    total = _Tally()
    for offset, (got, want) in blocks(actual, expected):
        wide_got, wide_want = widened(got), widened(want)
        error, excess = errors(wide_got, wide_want, tolerance)
        signs, zeros = sign_differences(wide_got, wide_want)
        if tolerance.signed_zero:
            insist_on_zeros(excess, zeros)
        total.mismatches += int(np.count_nonzero(excess > 0))
        total.signs += int(np.count_nonzero(signs))
        total.zeros += int(np.count_nonzero(zeros))
        total.furthest.offer(excess, offset)
        if not error.any():
            continue
        number = ~(np.isnan(wide_got) | np.isnan(wide_want))
        infinite = (np.isinf(wide_got) | np.isinf(wide_want)) & (error > 0)
        total.nans += int(np.count_nonzero(np.isnan(error)))
        total.infs += int(np.count_nonzero(infinite))
        error[~number] = 0
        total.max_abs = max(total.max_abs, float(error.max()))
        total.max_rel = max(total.max_rel, _largest_relative(error, np.abs(wide_want)))
        total.max_ulp = max(total.max_ulp, int(np.max(ulp_distance(got, want), where=number, initial=0)))
    return total


def _largest_relative(error: Array, size: Array) -> float:
    usable = (size > 0) & np.isfinite(size)
    return float(np.max(np.divide(error, size, out=np.zeros(size.shape), where=usable)))


def _widest_integer(values: Array) -> Array:
    return values.astype(np.uint64 if values.dtype.kind in "bu" else np.int64)


def _worst(actual: Array, expected: Array, offset: int) -> Worst:
    index = tuple(int(one) for one in np.unravel_index(offset, expected.shape))
    got, want = np.asarray(actual[index]), np.asarray(expected[index])
    if kind_of(expected.dtype) in ("bool", "int"):
        return Worst(index, got.item(), want.item(), abs(int(got) - int(want)), None)
    error = float(np.abs(widened(got) - widened(want)))
    distance = None if np.isnan(got) or np.isnan(want) else int(ulp_distance(got, want))
    return Worst(index, got.item(), want.item(), error, distance)


def _companion(name: str, values: ArrayLike, expected: Array) -> Array:
    """Return the reference, control or bound as an array. Raises ``ValueError`` if it does not fit."""
    array = np.asarray(values)
    if array.shape != expected.shape:
        raise ValueError(f"the {name} has shape {list(array.shape)}, expected has {list(expected.shape)}")
    if array.dtype.kind == "c" and expected.dtype.kind != "c":
        raise ValueError(f"the {name} is complex ({array.dtype}), expected is {expected.dtype}")
    return array
