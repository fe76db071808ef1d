"""Bounds on rounding errors: they let rounding pass, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optest.core.case import BackendTarget, TestCase
from optest.core.comparator import compare
from optest.core.reference import reference_outputs, rounded
from optest.core.roundoff import Stages, Sums, rounding_bounds, rule_of
from optest.core.tolerance import Tolerance
from optest.core.verdict import judge
from optest.operators import operator_registry


def case_of(op: str, dtype: str, *shapes: tuple[int, ...], **attributes: object) -> TestCase:
    descriptor = operator_registry.get(op)
    (dtypes,) = descriptor.match_dtypes((dtype,))[:1]
    named = dict(zip(descriptor.inputs, shapes, strict=True))
    complete = descriptor.complete_attributes(attributes)
    return TestCase(descriptor, dtypes, named, complete, BackendTarget("numpy"), None, 0)


def normals(case: TestCase, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    return tuple(
        rng.normal(size=case.shapes[name]).astype(dtype)
        for name, dtype in zip(case.descriptor.inputs, case.dtypes, strict=True)
    )


def bound_of(case: TestCase, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    rule = rule_of(case)
    assert rule is not None
    (bound,) = rounding_bounds(case, rule, inputs, reference_outputs(case, inputs))
    return bound


def test_a_product_of_matrices_by_hand() -> None:
    """n = 3 terms, v = u = 2⁻²⁴, f(|x|) = 1·4 + 2·5 + 3·6 = 32, t = 4 − 10 + 18 = 12, no addend."""
    case = case_of("mm", "float32", (1, 3), (3, 1))
    inputs = np.float32([[1, -2, 3]]), np.float32([[4], [5], [6]])
    u = 2.0**-24
    expected = 3 * u / (1 - 3 * u) * 32 + 3 * u * 12
    assert bound_of(case, inputs).item() == pytest.approx(expected, rel=1e-9)


def test_narrow_floats_keep_their_sums_in_float32() -> None:
    """The u of bfloat16 counts only where values are stored: for the result and the addend (here 7)."""
    case = case_of("addmm", "bfloat16", (1, 1), (1, 2), (2, 1))
    inputs = tuple(np.array(one, float).astype("bfloat16") for one in ([[7]], [[1, 2]], [[3], [4]]))
    u, v = 2.0**-8, 2.0**-24
    expected = 3 * v / (1 - 3 * v) * 18 + 3 * u * (18 + 7)
    assert bound_of(case, inputs).item() == pytest.approx(expected, rel=1e-9)


def test_scalar_factors_count_by_their_size() -> None:
    inputs = np.float32([[7]]), np.float32([[1, 2]]), np.float32([[3, 4]]).T
    minus = case_of("addmm", "float32", (1, 1), (1, 2), (2, 1), alpha=-2, beta=-1)
    u = 2.0**-24
    expected = 3 * u / (1 - 3 * u) * (22 + 7) + 3 * u * (29 + 7)
    assert bound_of(minus, inputs).item() == pytest.approx(expected, rel=1e-9)


def test_long_sums_grow_like_the_root() -> None:
    """A sum of 10,000 terms is allowed 8 · 100 roundings instead of 10,000."""
    case = case_of("sum", "float32", (10_000,))
    bound = bound_of(case, (np.ones(10_000, np.float32),)).item()
    u = 2.0**-24
    assert bound == pytest.approx(800 * u / (1 - 1e4 * u) * 1e4 + 3 * u * 1e4, rel=1e-9)


def test_a_mean_counts_its_terms() -> None:
    case = case_of("mean", "float32", (4,))
    u = 2.0**-24
    assert bound_of(case, (np.ones(4, np.float32),)).item() == pytest.approx(4 * u + 3 * u, rel=1e-6)


def test_sums_in_place_pay_for_each_addition() -> None:
    case = case_of("scatter_add", "bfloat16", (1,), (6,), (6,), dim=0)
    inputs = np.zeros(1, "bfloat16"), np.zeros(6, np.int64), np.ones(6, "bfloat16")
    u = 2.0**-8
    assert bound_of(case, inputs).item() == pytest.approx(7 * u / (1 - 7 * u) * 6 + 3 * u * 6, rel=1e-9)


def test_stages_follow_the_condition_of_the_result() -> None:
    """A product of k factors moves by k units if each factor moves by one."""
    case = case_of("prod", "float16", (5,))
    assert case.descriptor.rounding == Stages(1)
    inputs = (np.array([1.5, 2, -1.25, 0.5, 3]).astype("float16"),)
    truth = 1.5 * 2 * 1.25 * 0.5 * 3
    assert bound_of(case, inputs).item() == pytest.approx(2.0**-11 * truth * (1 + 5), rel=1e-4)


@pytest.mark.parametrize("op", ["layer_norm", "scaled_dot_product_attention", "cosine_similarity"])
def test_bounds_are_deterministic(op: str) -> None:
    shapes = {"layer_norm": [(3, 4), (4,), (4,)], "cosine_similarity": [(2, 4)] * 2}.get(op, [(1, 2, 4)] * 3)
    attributes = {"normalized_shape": [4]} if op == "layer_norm" else {}
    case = case_of(op, "float16", *shapes, **attributes)
    assert np.array_equal(bound_of(case, normals(case)), bound_of(case, normals(case)))


def test_what_is_not_finite_has_no_slack() -> None:
    case = case_of("mm", "float32", (1, 2), (2, 1))
    assert bound_of(case, (np.float32([[np.inf, 1]]), np.float32([[1], [1]]))).item() == 0


def test_elementwise_operators_have_one_step_and_others_no_rule() -> None:
    """x − y at 1 and 0.75: both operands, and the result 0.25, may move by one unit."""
    case = case_of("sub", "float16", (1,), (1,))
    assert rule_of(case) == Stages(1)
    inputs = np.float16([1]), np.float16([0.75])
    assert bound_of(case, inputs).item() == pytest.approx(2.0**-11 * (0.25 + 1.75), rel=1e-4)
    assert rule_of(case_of("sort", "float16", (3,))) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("share", [0.12, 0.04, -0.06])
@pytest.mark.parametrize("op", ["exp", "tanh", "sqrt", "mul", "sigmoid"])
def test_one_wrong_element_of_an_elementwise_result_is_found(op: str, share: float, dtype: str) -> None:
    """The element is found although the rounding error of the largest element exceeds the mistake."""
    shapes = [(64,), (64,)] if op == "mul" else [(64,)]
    case = case_of(op, dtype, *shapes)
    small = np.linspace(0.1, 0.2, 64)
    small[0] = 2.0 if op in ("tanh", "sigmoid") else 60.0
    if op == "exp":
        small = np.log(small)
    inputs = tuple(small.astype(one) for one in case.dtypes)
    wide = reference_outputs(case, inputs)
    actual = rounded(case, wide)
    assert judge(case, actual, rounded(case, wide), wide, lambda: inputs)[0].passed
    actual[0][40] *= 1 + share
    (found,) = judge(case, actual, rounded(case, wide), wide, lambda: inputs)
    assert not found.passed
    assert found.worst is not None
    assert found.worst.index == (40,)


def test_wide_elementwise_results_have_no_second_chance() -> None:
    case = case_of("sub", "float32", (1,), (1,))
    inputs = np.float32([1]), np.float32([1 - 2.0**-10])
    wide = reference_outputs(case, inputs)
    actual = [(wide[0] + 1.1e-5).astype(np.float32)]
    (found,) = judge(case, actual, rounded(case, wide), wide, lambda: inputs)
    assert not found.passed


@pytest.mark.parametrize("wrong", [np.float32(1 + 2.0**-23), np.float32(-0.0), np.float32(0)])
def test_elements_that_are_moved_are_exact(wrong: np.float32) -> None:
    """The last bit, the sign of zero and subnormal numbers must be right."""
    case = case_of("flip", "float32", (3,), dims=[0])
    inputs = (np.float32([1, 0, 1e-40]),)
    wide = reference_outputs(case, inputs)
    expected = rounded(case, wide)
    place = {1.0: 2, 0.0: 1}[round(abs(float(wrong)), 3)] if np.signbit(wrong) or wrong else 0
    actual = [expected[0].copy()]
    actual[0][place] = wrong
    assert judge(case, expected, expected, wide, lambda: inputs)[0].passed
    assert not judge(case, actual, expected, wide, lambda: inputs)[0].passed


def test_addends_are_inputs() -> None:
    ruled = [one for one in operator_registry if one.rounding is not None]
    assert len(ruled) >= 40
    addends = [(one, one.rounding.addend) for one in ruled if isinstance(one.rounding, Sums)]
    assert all(addend is None or addend in one.inputs for one, addend in addends)


def judged(case: TestCase, inputs: tuple[np.ndarray, ...], change: float) -> list[str | None]:
    """Return the rules by which outputs pass that are off by ``change`` times their bound."""
    wide = reference_outputs(case, inputs)
    bound = bound_of(case, inputs)
    actual = [
        (one + change * bound).astype(dtype) for one, dtype in zip(wide, case.output_dtypes, strict=True)
    ]
    return [one.passed_by for one in judge(case, actual, rounded(case, wide), wide, lambda: inputs)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_judge_excuses_errors_within_the_bound_only(dtype: str) -> None:
    case = case_of("layer_norm", dtype, (6, 8), (8,), (8,), normalized_shape=[8])
    inputs = normals(case)
    assert judged(case, inputs, 0.5) == ["accuracy"]
    assert judged(case, inputs, 3.0) == [None]


def test_a_given_tolerance_has_no_second_chance() -> None:
    case = case_of("layer_norm", "float16", (6, 8), (8,), (8,), normalized_shape=[8])
    inputs = normals(case)
    wide = reference_outputs(case, inputs)
    actual = [(wide[0] + 0.5 * bound_of(case, inputs)).astype("float16")]
    strict = replace(case, tolerance=Tolerance(1e-4, 1e-6))

    def unasked() -> tuple[np.ndarray, ...]:
        raise AssertionError("inputs are not needed")

    (found,) = judge(strict, actual, rounded(case, wide), wide, unasked)
    assert not found.passed


def test_excused_elements_are_counted_and_named() -> None:
    truth = np.float64([1.0, 2.0, 3.0])
    actual = np.float32([1.0, 2.001, 3.01])
    found = compare(actual, np.float32(truth), reference=truth, bound=[0.0, 2e-3, 5e-3])
    assert not found.passed
    assert found.accuracy is not None
    assert (found.accuracy.violations, found.accuracy.excused) == (1, 1)
    passed = compare(actual, np.float32(truth), reference=truth, bound=[0.0, 2e-3, 2e-2])
    assert passed.passed_by == "accuracy"
    assert "2 beyond it explained by rounding" in passed.summary()


def test_a_bound_must_fit() -> None:
    with pytest.raises(ValueError, match="bound has shape"):
        compare(np.float32([1]), np.float32([2]), reference=np.float64([2]), bound=[1.0, 2.0])
