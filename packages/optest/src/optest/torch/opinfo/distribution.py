"""Judges random results: compares many repeats of a call with as many repeats by eager PyTorch.

Repeats are compared position by position (``positions``), and pooled over all elements. A right
backend fails a case with a probability of 1e-6, which is divided among the checks. One half goes
to the positions, for which it is an upper bound. The other half goes to the pooled numbers: it is
divided among the results, and then equally among the checks of each result. The functions for
these checks name the distributions that they use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from ...backends.driver import Answer, CallDriver
from ...core.comparator import compare
from ...core.result import Status
from ...core.tolerance import default_tolerance
from .asking import asked
from .calls import copied, evaluate
from .phases import Case
from .positions import misplaced
from .verdict import Fields, array_of, by_form, mismatch

_TWINS = 2
"""How often one program contains each call."""
_RUNS = 64
"""How often one program runs."""
_SEEDED = 8
"""How many calls of a group are repeated, with the same seed and with another one."""
_SEEDS = 32
"""How many seeds are tried to find out whether a sample is random.

Several are needed: if a sample draws one of a few windows, some seeds agree by chance.
"""
_DEVIATIONS = 6.0
_PROBABILITY = 1e-6
"""The probability that a case of a right backend fails."""
_POOLED = 4
"""The number of checks of pooled numbers that share the probability equally.

The checks of moments are not among them, because six standard errors are exceeded even less often.
"""
_SHARE = 0.1
"""The share of the tolerance by which eager's repeats may differ and still count as equal.

The rest of the tolerance is left for the backend.
"""
_ROUNDING = 1e-6
"""The relative distance up to which two numbers count as the same."""
_CONTROL = 4
"""The seed of eager's repeats."""

Rows = NDArray[Any]
"""One row per repeat, one column per element."""


def is_random(case: Case) -> bool:
    """Whether eager PyTorch gives different values for this sample, beyond rounding, with another seed."""
    first: list[NDArray[Any]] | None = None
    for seed in range(_SEEDS):
        torch.manual_seed(seed)
        found = [array_of(one) for one in evaluate(case.call.run.map(copied))]
        first = first or found
        if not all(one_value(pair, _SHARE) for pair in zip(first, found, strict=True)):
            return True
    return False


def by_distribution(driver: CallDriver, cases: Sequence[Case]) -> list[Fields]:
    """Judge random calls by form, distribution, moments, streams and seeds, as the module docstring says.

    A program contains each call twice and runs several times. Neither the two calls nor the runs
    may give the same numbers.
    """
    if not cases:
        return []
    torch.manual_seed(3)
    answers = iter(asked(driver, [case.call for case in cases for _ in range(_TWINS)], _RUNS))
    found = [_judged(case, [next(answers) for _ in range(_TWINS)]) for case in cases]
    right = [place for place, fields in enumerate(found) if fields["status"] is Status.PASSED][:_SEEDED]
    for place, problem in _by_seeds(driver, [cases[one] for one in right]):
        found[right[place]] = mismatch(problem)
    return found


def _judged(case: Case, answers: Sequence[Answer]) -> Fields:
    for answer in answers:
        if answer.unsupported:
            return {"status": Status.UNSUPPORTED, "reason": answer.unsupported}
        if answer.outputs is None:
            return {"status": Status.ERROR, "reason": answer.error_text}
    size = len(case.expected)
    flat = [answer.outputs or () for answer in answers]
    runs = [outputs[start : start + size] for start in range(0, len(flat[0]), size) for outputs in flat]
    for outputs in runs:
        fields = by_form(case, outputs)
        if fields["status"] is not Status.PASSED:
            return fields
    torch.manual_seed(_CONTROL)
    expected = [evaluate(case.call.run.map(copied)) for _ in runs]
    ours, eager, random = [], [], []
    for place in range(size):
        got, want = ([array_of(row[place]) for row in rows] for rows in (runs, expected))
        if one_value([*want, *got]):
            continue
        if problem := differs(_rows(got), _rows(want), _PROBABILITY / 2 / size):
            return mismatch(f"output{place}: {problem}")
        ours.append(np.stack(got))
        eager.append(np.stack(want))
        random.append(place)
    if ours and (problem := misplaced(ours, eager, _PROBABILITY / 2)):
        exact = _exact(case, len(runs), random)
        if not exact or (problem := misplaced(ours, eager, _PROBABILITY / 2, exact)):
            return mismatch(problem)
    fallback = sorted({name for answer in answers for name in answer.fallback})
    if fallback:
        return {"status": Status.FALLBACK, "reason": f"ran in eager PyTorch: {', '.join(fallback)}"}
    return {"status": Status.PASSED, "reason": f"by the distribution of {len(runs)} repeats"}


def _exact(case: Case, repeats: int, places: Sequence[int]) -> list[NDArray[Any]]:
    """Return eager's repeats of the outputs at ``places`` in wider dtypes; empty if it lacks such kernels."""
    torch.manual_seed(_CONTROL)
    try:
        truth = [case.truth() for _ in range(repeats)]
    except Exception:  # noqa: BLE001  # eager has no wider kernel for it
        return []
    return [np.stack([array_of(row[place]) for row in truth]) for place in places]


def _by_seeds(driver: CallDriver, cases: Sequence[Case]) -> list[tuple[int, str]]:
    """Return the index and problem of each case that ignores seeds.

    Such a case gives different values with the same seed, or the same values with another seed.
    """
    calls = [case.call for case in cases]

    def seeded(seed: int, ask: Callable[[], Sequence[Sequence[Any]]]) -> list[list[bytes]]:
        torch.manual_seed(seed)
        return [[array_of(one).tobytes() for one in outputs] for outputs in ask()]

    def ours() -> list[Sequence[Any]]:
        return [answer.outputs or () for answer in asked(driver, calls)]

    first, again, other = (seeded(seed, ours) for seed in (5, 5, 6))
    pairs = zip(first, again, strict=True)
    found = [
        (place, "the same seed gave other values") for place, (one, two) in enumerate(pairs) if one != two
    ]
    if found or first != other:
        return found
    eager = [
        seeded(seed, lambda: [evaluate(call.run.map(copied)) for call in calls]) for seed in range(_SEEDS)
    ]
    by_chance = prod(
        Counter(map(tuple, rows)).most_common(1)[0][1] / _SEEDS for rows in zip(*eager, strict=True)
    )
    if by_chance < _PROBABILITY:
        return [(place, "another seed gave the same values") for place in range(len(cases))]
    return []


def one_value(arrays: Sequence[NDArray[Any]], share: float = 1.0) -> bool:
    """Whether all arrays equal the first one within ``share`` of the dtype's tolerance.

    Then the random numbers do not affect the result. An example is a gradient that is zero except for
    rounding errors, which differ in each repeat.
    """
    usual = default_tolerance(arrays[0].dtype)
    allowed = replace(usual, rtol=share * usual.rtol, atol=share * usual.atol)
    return all(compare(one, arrays[0], allowed).passed for one in arrays[1:])


def differs(got: Rows, want: Rows, chance: float = _PROBABILITY) -> str:
    """Return how the pooled rows differ in distribution or independence; empty if they do not.

    For a right backend, they differ with a probability of ``chance``.
    """
    chance /= _POOLED
    if not got.size:
        return ""
    if np.isnan(got).any() and not np.isnan(want).any():
        return "NaN among the values"
    distinct = len({row.tobytes() for row in got})
    commonest = max(Counter(row.tobytes() for row in want).values()) / len(want)
    if distinct == 1 and commonest ** (len(got) - 1) < chance:
        return f"{len(got)} repeats gave the same values: the stream does not advance"
    # If two rows are equal, they are both the backend's with a probability of 1/4: in three of four
    # cases, one or both are eager's.
    if commonest == 1 / len(want) and 4.0 ** (distinct - len(got)) < chance:
        return f"only {distinct} of {len(got)} repeats gave values of their own: the stream comes back"
    a, b = (rows[np.isfinite(rows)] for rows in (got, want))
    if not (a.size and b.size):
        return "" if a.size == b.size else "values that are not finite"
    share = 1 / _design_effect(want)
    # Only the statistic of the test is used: "asymp" avoids the exact probability, which takes seconds.
    statistic = float(stats.ks_2samp(*_with_equal_atoms(a, b), method="asymp").statistic)
    # The asymptotic distribution of the two-sample statistic (Smirnov 1948), with the effective sizes.
    size = share * a.size * b.size / (a.size + b.size)
    if stats.kstwobign.sf(statistic * np.sqrt(size)) < chance:
        return f"another distribution (Kolmogorov-Smirnov: {statistic:.3g})"
    for name, moment in (("mean", 1), ("second moment", 2)):
        x, y = a**moment, b**moment
        error = np.sqrt((x.var() / x.size + y.var() / y.size) / share)
        if error and np.isfinite(error) and abs(x.mean() - y.mean()) > _DEVIATIONS * error:
            return f"{name} {x.mean():.4g}, eager's {y.mean():.4g} (standard error {error:.2g})"
    return _dependent(got, chance)


def _with_equal_atoms(a: Rows, b: Rows) -> tuple[Rows, Rows]:
    """Return both samples with neighbors made equal if only a rounding error separates them.

    A random mask over given numbers has few distinct values, which two implementations may round differently.
    """
    pooled = np.sort(np.concatenate([a, b]))
    first = pooled[np.append(True, np.diff(pooled) > _ROUNDING * np.abs(pooled[1:]))]
    return first[np.searchsorted(first, a, "right") - 1], first[np.searchsorted(first, b, "right") - 1]


def _design_effect(rows: Rows) -> float:
    """Return how many dependent numbers are worth one independent number (Kish 1965), at least 1.

    Elements of one repeat may depend on each other (a mask over whole channels, singular
    vectors), but the repeats are independent.
    """
    finite = np.where(np.isfinite(rows), rows, 0.0)
    effects = [1.0]
    for values in (finite, finite**2, finite <= np.median(finite)):
        spread = float(np.var(values))
        if spread and np.isfinite(spread):
            effects.append(float(np.var(values.mean(axis=1), ddof=1)) * rows.shape[1] / spread)
    # A variance of few rows is itself uncertain; it may be off by half.
    return 1.5 * max(effects)


def _dependent(rows: Rows, chance: float) -> str:
    """Return how successive repeats are correlated, by a t-test over the repeats; empty if they are not.

    The correlation is that of ranks (Spearman 1904), because values may have no finite variance, such
    as the gradients of singular vectors.
    """
    ranks = stats.rankdata(np.nan_to_num(rows), axis=0)
    centred = ranks - ranks.mean(axis=0)
    products = (centred[:-1] * centred[1:]).sum(axis=1)
    # Subtracting the mean over the repeats correlates neighbors by -1/n; this cancels it.
    products += (centred**2).sum() / len(rows) ** 2
    error = float(products.std(ddof=1)) / np.sqrt(len(products))
    if not (error and np.isfinite(error)):
        return ""
    deviation = float(products.mean()) / error
    if 2 * stats.t.sf(abs(deviation), len(products) - 1) < chance:
        return f"neighbouring repeats are correlated ({deviation:.1f} standard errors)"
    return ""


def _rows(values: Sequence[NDArray[Any]]) -> Rows:
    arrays = [one.ravel() for one in values]
    if arrays[0].dtype.kind == "c":
        arrays = [np.concatenate([one.real, one.imag]) for one in arrays]
    return np.stack([one.astype(np.float64) for one in arrays])
