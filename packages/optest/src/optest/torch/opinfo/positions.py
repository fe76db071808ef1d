"""Judges random results position by position: pairs each repeat of a call with a repeat of eager's.

Pooled numbers (``distribution``) do not show where in a result they stand. This module compares the
distribution of every element, and how elements, repeats and results of one repeat depend on each
other.

All checks have the same form. A number is computed from each repeat (or from two successive ones),
and from eager's repeat that it is paired with; d_k is the difference. If the backend is right,
the two could be exchanged in any pair, so d_k has a random sign, and the sum of the d_k exceeds
t·√(Σ d_k²) with a probability of at most 2·exp(−t²/2) (Hoeffding, J. Am. Stat. Assoc.
58, 1963), whatever the distribution is and however elements depend on each other. The
numbers come from ranks within each element, over the backend's and eager's repeats together,
which no exchange alters. All checks share ``chance`` (Bonferroni), so that it bounds the
probability that any of them finds something wrong in a right backend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...core.dtypes import is_narrow
from ...core.tolerance import default_tolerance

Values = NDArray[Any]
Rows = NDArray[np.float64]
"""One row per repeat."""

_WIDTH = 4.0
"""The largest extent of a cluster, in tolerances.

Values count as one if each is within a tolerance of the next, and all are within this extent.
"""
_COLUMNS = 2048
"""How many elements of a result, at most, are checked for dependence: the first ones."""
_PAIRED = 512
"""How many elements of all results, at most, are checked in every pair."""
_ROUNDING = 1e-6
"""The distance up to which two numbers count as the same, relative to the largest number in a repeat."""
_SLACK = 4.0
"""How many times eager's largest error in an element two implementations may differ by rounding."""
_DRAWN = 1e-3
"""Relative errors above this are not rounding: the wider dtype draws other numbers."""
_USUAL = 0.9
"""The quantile of a result's absolute values that stands for their usual size.

A higher quantile would depend on single outliers.
"""
_LARGEST = 1e300


def misplaced(
    got: Sequence[Values], want: Sequence[Values], chance: float, exact: Sequence[Values] | None = None
) -> str:
    """Return how the results differ, with the element that shows it best; empty if they do not.

    Each argument has one array per output, [repeats, shape…], of any dtype. ``got`` and ``want`` have
    the same number of repeats, in the order in which they were made. ``exact`` is ``want`` in wider
    dtypes; if the draws are the same, the errors of ``want`` against it count as rounding.
    """
    places = [place for place, one in enumerate(got) if one.size]
    if not places:
        return ""
    sides = []
    for place in places:
        ours, eager = _parts(got[place]), _parts(want[place])
        rounding = _errors(eager, _parts(exact[place])) if exact else np.zeros(ours[0].size)
        sides.append(_scored(ours, eager, got[place].dtype, rounding))
    share = chance / (2 * len(places) + 1)
    for place, side in zip(places, sides, strict=True):
        kinds = ((_by_element, share), (_by_distance, share / 2), (_by_repeat, share / 2))
        for checks, one_share in kinds:
            if found := _first(checks(side), one_share, _parts(got[place]).shape[1:]):
                return f"output{place}: {found}"
    return _first(_between_elements(sides), share, ())


@dataclass(frozen=True)
class _Scores:
    """The repeats of one result as ranks within each element: [repeats, elements], from −1 to 1.

    ``common`` is 1 where the value is the most common one of its element. ``distinct`` is how many
    different values each repeat has; it is empty for dtypes for which that number means nothing.
    """

    got: Rows
    want: Rows
    got_common: Rows
    want_common: Rows
    got_distinct: Rows
    want_distinct: Rows


def _scored(got: Rows, want: Rows, dtype: np.dtype[Any], rounding: Rows) -> _Scores:
    count = len(got)
    both = np.concatenate([got.reshape(count, -1), want.reshape(count, -1)])
    clusters = _clusters(both, dtype, rounding)
    low, high = (stats.rankdata(clusters, method, axis=0) for method in ("min", "max"))
    scores = (low + high - 2 * count - 1) / (2 * count)
    sizes = high - low
    common = (sizes == sizes.max(0)).astype(np.float64)
    # Narrow floats repeat by chance, and how often depends on the implementation.
    distinct = np.zeros((2 * count, 0)) if is_narrow(dtype) else _distinct(both, rounding)
    return _Scores(*scores.reshape(2, count, -1), *common.reshape(2, count, -1), *np.split(distinct, 2))


def _parts(values: Values) -> Rows:
    """Return the values as float64: complex numbers as pairs, NaN and infinities as very large numbers."""
    parts = np.stack([values.real, values.imag], -1) if values.dtype.kind == "c" else values
    return np.nan_to_num(parts.astype(np.float64), nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST / 2)


def _errors(want: Rows, exact: Rows) -> Rows:
    """Return how far apart two roundings of each element may be; 0 if the wider dtype draws other numbers."""
    errors, sizes = np.abs(want - exact), np.abs(exact)
    # A number that is negligible beside the largest one may be 0 on one side.
    if (errors > _DRAWN * np.maximum(sizes, _ROUNDING * sizes.max())).any():
        errors = np.zeros_like(errors)
    return _SLACK * errors.max(0).ravel()


def _clusters(values: Rows, dtype: np.dtype[Any], rounding: Rows) -> NDArray[np.int64]:
    """Return, for each column, the number of the cluster that each value belongs to.

    Values that differ only by the rounding of two right implementations count as one. The rounding of a
    sum depends on the size of its terms; where a sum is small, the other values of the result show that size.
    """
    tolerance = default_tolerance(dtype)
    order = np.argsort(values, axis=0)
    ordered = np.take_along_axis(values, order, 0)
    sizes = np.abs(ordered)
    allowed = tolerance.atol + tolerance.rtol * np.maximum(sizes, np.quantile(sizes, _USUAL))
    allowed = np.maximum(allowed, rounding)
    numbers = np.zeros(values.shape, dtype=np.int64)
    first = ordered[0]
    for row in range(1, len(ordered)):
        apart = ordered[row] - ordered[row - 1] > allowed[row]
        apart |= ordered[row] - first > _WIDTH * allowed[row]
        numbers[row] = numbers[row - 1] + apart
        first = np.where(apart, ordered[row], first)
    found = np.empty_like(numbers)
    np.put_along_axis(found, order, numbers, 0)
    return found


def _distinct(rows: Rows, rounding: Rows) -> Rows:
    """Return how many different values each row has, less one: [rows, 1].

    Values count as the same if their distance is negligible beside the largest one of the row.
    """
    ordered = np.sort(rows, axis=1)
    close = np.maximum(_ROUNDING * np.abs(ordered).max(1, keepdims=True, initial=0), rounding.max())
    apart = np.diff(ordered, axis=1) > close
    return apart.sum(1, keepdims=True).astype(np.float64)


@dataclass(frozen=True)
class _Check:
    """Differences, [units, numbers], one row per pair; ``text`` says what is wrong, with # for the place."""

    text: str
    differences: Rows


def _first(checks: Iterator[_Check], chance: float, shape: Sequence[int]) -> str:
    """Return the text for the number furthest beyond what ``chance`` allows; empty if none is beyond."""
    every = [one for one in checks if one.differences.size]
    count = sum(one.differences.shape[1] for one in every)
    limit = math.sqrt(2 * math.log(2 * count / chance)) if count else 0.0
    worst, text = limit, ""
    for one in every:
        size = np.sqrt(np.square(one.differences).sum(0))
        total = np.abs(one.differences.sum(0))
        deviations = np.divide(total, size, out=np.zeros_like(total), where=size > 1e-9)
        place = int(deviations.argmax())
        if deviations[place] > worst:
            worst = float(deviations[place])
            where = [int(i) for i in np.unravel_index(place, shape)] if "#" in one.text else []
            what = one.text.replace("#", str(where))
            text = f"{what} (deviation {worst:.1f}; a right backend stays below {limit:.1f})"
    return text


# What is compared ------------------------------------------------------------------------


def _by_element(side: _Scores) -> Iterator[_Check]:
    """Check every element's location, spread and most common value; then all elements together."""
    location, spread = side.got - side.want, np.abs(side.got) - np.abs(side.want)
    yield _Check("element # has other values than eager's", location)
    yield _Check("element # has another spread than eager's", spread)
    yield _Check(
        "element # takes one value more or less often than eager's", side.got_common - side.want_common
    )
    for what, differences in (("values", location), ("spreads", spread)):
        yield _Check(f"elements have other {what} than eager's", _learned(differences))


def _learned(differences: Rows) -> Rows:
    """Project the second half of the rows onto the mean of the first half.

    This may show a difference that no single element shows.
    """
    half = len(differences) // 2
    return differences[half:] @ differences[:half].mean(0)[:, None]


def _by_distance(side: _Scores) -> Iterator[_Check]:
    """Check how elements of one repeat depend on those a fixed number of places away.

    Also check how many different values a repeat has.
    """
    got, want = (one[:, :_COLUMNS] for one in (side.got, side.want))
    apart = slice(1, got.shape[1])
    yield _Check(
        "elements of one repeat depend on each other in another way than in eager's",
        _products(got, got)[:, apart] - _products(want, want)[:, apart],
    )
    yield _Check(
        "a repeat has more or fewer different values than eager's", side.got_distinct - side.want_distinct
    )


def _by_repeat(side: _Scores) -> Iterator[_Check]:
    """Check how successive repeats depend on each other, each element with all others.

    The pairs are the two calls of one run, neighboring calls of two runs, and the same call in two runs.
    """
    got, want = (one[:, :_COLUMNS] for one in (side.got, side.want))
    rows = np.arange(len(got))
    starts = (rows[:-1:2], rows[1:-1:2], rows[(rows % 4 < 2) & (rows + 2 < len(rows))])
    for first, step in zip(starts, (1, 1, 2), strict=True):
        yield _Check(
            "successive repeats depend on each other",
            _products(got[first], got[first + step]) - _products(want[first], want[first + step]),
        )


def _products(left: Rows, right: Rows) -> Rows:
    """Return Σ left_j · right_(j+s) for each row and every distance s: first 0, 1, …, then negative ones."""
    size = 2 * left.shape[1]
    return np.fft.irfft(np.conj(np.fft.rfft(left, size)) * np.fft.rfft(right, size), size)


def _between_elements(sides: Sequence[_Scores]) -> Iterator[_Check]:
    """Check pairs of elements, of one result or of two.

    The weight of each pair is how much its product differs in the first half of the repeats.
    """
    share = max(_PAIRED // len(sides), 1)
    got = np.hstack([one.got[:, :share] for one in sides])
    want = np.hstack([one.want[:, :share] for one in sides])
    half = len(got) // 2
    weights = got[:half].T @ got[:half] - want[:half].T @ want[:half]
    np.fill_diagonal(weights, 0)
    ours, eager = (((one[half:] @ weights) * one[half:]).sum(1, keepdims=True) for one in (got, want))
    yield _Check(
        "pairs of elements of one repeat depend on each other in another way than in eager's", ours - eager
    )
