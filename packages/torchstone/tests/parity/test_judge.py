"""The judge of parity passes differences that rounding explains, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy
import pytest
import torch

from torchstone.parity.judge import Judge, Others
from torchstone.parity.roundings import RUNS
from torchstone.parity.verification import DType

Array = numpy.ndarray[Any, Any]
FLOAT32 = Judge("float32", None, None)
BFLOAT16 = Judge("bfloat16", None, None)


def rounded(truth: Array, noise: float, seed: int) -> Array:
    """``truth`` in float32 with normal errors of the size ``noise``."""
    random = numpy.random.default_rng(seed)
    return numpy.asarray(truth + noise * random.standard_normal(truth.shape), numpy.float32)


def runs(truth: Array, noise: float) -> list[Array]:
    """Return what eager PyTorch and its runs with other roundings would give."""
    return [rounded(truth, noise, seed) for seed in range(1 + RUNS)]


def wrong(judge: Judge, actual: Array, truth: Array, eager: Sequence[Array]) -> list[str]:
    """Return what is wrong with ``actual``: its elements, or its size."""
    found = judge.verdicts(actual, eager[0], truth, lambda: eager[1:])
    return [what.strip() or "elements" for what, verdict in found if not verdict.passed]


def values(count: int) -> Array:
    return numpy.random.default_rng(99).uniform(0.5, 1, count)


def test_a_value_as_wrong_as_eagers_passes_and_one_per_cent_does_not() -> None:
    truth = values(500)
    eager = runs(truth, 1e-3)
    assert wrong(FLOAT32, rounded(truth, 1e-3, 50), truth, eager) == []
    assert wrong(FLOAT32, rounded(truth * 1.01, 1e-3, 50), truth, eager) == ["elements", "size of"]
    assert wrong(FLOAT32, rounded(truth, 1e-2, 50), truth, eager) == ["elements"]


def test_a_scalar_is_not_held_to_an_error_that_happens_to_be_small() -> None:
    truth = numpy.array(1.0)
    eager = runs(truth, 1e-3)
    eager[0] = numpy.float32(1).reshape(())
    for sign in (1, -1):
        assert wrong(FLOAT32, numpy.float32(1 + sign * 3e-3).reshape(()), truth, eager) == []
        assert wrong(FLOAT32, numpy.float32(1 + sign * 2e-2).reshape(()), truth, eager) == ["elements"]


def test_a_zero_that_is_nothing_but_rounding_passes_at_the_size_of_eagers() -> None:
    truth = numpy.zeros(128)
    eager = runs(truth, 0.1)
    assert wrong(FLOAT32, rounded(truth, 0.15, 50), truth, eager) == []
    assert wrong(FLOAT32, rounded(truth, 1, 50), truth, eager) == ["elements"]


def test_float64_that_decided_otherwise_excuses_nothing() -> None:
    """At a ReLU float64 and float32 took different sides. They differ by 3 %, float32's runs by far less."""
    mine = values(500)
    truth = mine * (1 + 0.06 * values(500)[::-1])
    eager = runs(mine, 1e-4)
    for right in (mine, truth):
        assert wrong(FLOAT32, rounded(right, 1e-4, 50), truth, eager) == []
        assert wrong(FLOAT32, rounded(right * 1.01, 1e-4, 50), truth, eager) == ["elements", "size of"]


def test_a_decision_that_some_runs_took_passes() -> None:
    truth = values(500)
    other = truth * (1 + 0.06 * values(500)[::-1])
    eager = [*runs(truth, 1e-4)[:7], *runs(other, 1e-4)[7:]]
    assert wrong(FLOAT32, rounded(other, 1e-4, 50), truth, eager) == []
    assert wrong(FLOAT32, rounded(truth, 1e-4, 50), truth, eager) == []
    assert wrong(FLOAT32, rounded(truth * 1.01, 1e-4, 50), truth, eager) == ["elements", "size of"]


def test_kernels_without_onednn_decide_where_the_usual_ones_explain_nothing() -> None:
    """All runs by the usual kernels took one side of a decision, and those without oneDNN the other."""
    usual = values(500)
    other = usual * (1 + 0.06 * values(500)[::-1])
    asked: list[str] = []

    def passed(actual: Array, given: Array) -> bool:
        def runs_of(name: str, of: Array) -> list[torch.Tensor]:
            asked.append(name)
            return [torch.from_numpy(one) for one in runs(of, 1e-4)[1:]]

        others = Others(lambda: runs_of("usual", usual), lambda: runs_of("without oneDNN", other))
        eager = torch.from_numpy(rounded(usual, 1e-4, 0))
        _, verdict = FLOAT32.decide(actual, eager, torch.from_numpy(given), others, in_training=False)
        return verdict.passed

    assert passed(rounded(usual, 1e-4, 50), usual)
    assert set(asked) == {"usual"}
    assert passed(rounded(other, 1e-4, 50), usual)
    assert set(asked) == {"usual", "without oneDNN"}
    assert not passed(rounded(other * 1.01, 1e-4, 50), usual)
    assert not passed(rounded(usual * 1.01, 1e-4, 50), usual)


def test_the_size_shows_what_is_less_than_the_rounding_of_each_element() -> None:
    truth = values(4000)
    eager = runs(truth, 1e-2)
    assert wrong(BFLOAT16, rounded(truth, 1e-2, 50), truth, eager) == []
    assert wrong(BFLOAT16, rounded(truth * 1.01, 1e-2, 50), truth, eager) == ["size of"]


@pytest.mark.parametrize("dtype", [numpy.float32, ml_dtypes.bfloat16, numpy.complex64])
def test_infinities_and_nan_are_the_same_ones(dtype: Any) -> None:
    truth = numpy.array([numpy.inf, numpy.nan, 1.0, 2.0])
    eager = [truth.astype(dtype)] * (1 + RUNS)
    assert wrong(BFLOAT16, truth.astype(dtype), truth, eager) == []
    assert wrong(BFLOAT16, truth[[2, 1, 0, 3]].astype(dtype), truth, eager) == ["elements"]


def test_runs_of_another_shape_do_not_count() -> None:
    truth = values(4)
    eager = [numpy.float32(truth), *[numpy.float32(truth[:3])] * RUNS]
    assert wrong(FLOAT32, numpy.float32(truth * 1.01), truth, eager) == ["elements"]


@pytest.mark.parametrize(
    ("judge", "actual"),
    [
        (FLOAT32, [1 + 1e-6, 2.0]),
        (Judge("float32", None, 1e-3), [1.1, 2]),
        (Judge("bfloat16", 0.5, None), [1.1, 2]),
    ],
)
def test_eager_runs_again_only_where_no_tolerance_decides(judge: Judge, actual: list[float]) -> None:
    def again() -> Sequence[Array]:
        raise AssertionError("it runs again")

    one = numpy.float32([1, 2])
    ((what, verdict),) = judge.verdicts(numpy.float32(actual), one, numpy.float64(one), again)
    assert what == ""
    assert verdict.passed == (judge.atol is None)
    with pytest.raises(AssertionError, match="it runs again"):
        list(FLOAT32.verdicts(numpy.float32([1.1, 2]), one, numpy.float64(one), again))


def test_float64_judges_unless_the_user_gives_a_tolerance() -> None:
    def passed_by(dtype: DType, rtol: float | None, atol: float | None, *arrays: Any) -> str | None:
        ((_, verdict),) = Judge(dtype, rtol, atol).verdicts(*arrays)
        return verdict.passed_by

    truth = numpy.array([1.0, 2.0])
    eager = numpy.array([1.0 + 4e-5, 2.0], numpy.float32)
    actual = numpy.array([1.0 - 4e-5, 2.0], numpy.float32)  # as wrong as eager, but the other way
    assert passed_by("float32", None, None, actual, eager, truth) == "accuracy"
    assert passed_by("float32", None, None, actual, eager, None) is None
    assert passed_by("float32", None, 1e-5, actual, eager, truth) is None
    assert passed_by("float32", 1e-4, None, actual, eager, truth) == "tolerance"
    half = eager.astype(ml_dtypes.bfloat16)
    assert passed_by("bfloat16", None, None, half, half, truth) == "accuracy"
    whole = numpy.array([1, 2])
    assert passed_by("bfloat16", 9.0, 9.0, whole + 1, whole, whole) is None
