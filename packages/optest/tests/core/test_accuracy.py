"""The accuracy rule: errors against a wider reference are limited by the control's errors."""

import numpy as np
import pytest

from optest.core import EXACT, Tolerance, compare

F32 = np.float32
ULP = 2.0**-23  # of float32 at 1


def test_passes_by_tolerance_and_asks_no_further() -> None:
    found = compare(F32([1, 2]), F32([1, 2]), reference=np.float64([5, 5]), control=F32([1, 2]))
    assert (found.passed_by, found.accuracy) == ("tolerance", None)


@pytest.mark.parametrize(("steps", "rule"), [(7, "accuracy"), (-7, "accuracy"), (8, None), (-8, None)])
def test_missed_tolerance_is_judged_by_twice_the_control(steps: int, rule: str | None) -> None:
    """The control is off by 3 ULP, so 2 · 3 + 1 ULP are allowed."""
    truth = np.float64([1.5, 1.5])
    control = F32(truth + np.array([3 * ULP, 0]))
    found = compare(F32(truth + np.array([steps * ULP, 0])), control, EXACT, reference=truth, control=control)
    assert found.passed_by == rule
    assert found.accuracy is not None
    assert found.accuracy.control_ulp_error == 3
    assert found.accuracy.ulp_error == abs(steps)
    assert found.accuracy.error == abs(steps) * ULP
    assert found.accuracy.violations == (rule is None)


def test_the_factor_is_the_tolerances() -> None:
    truth = np.float64([1.5])
    got, control = F32(truth + 8 * ULP), F32(truth + 3 * ULP)
    assert not compare(got, control, EXACT, reference=truth).passed
    assert compare(got, control, Tolerance(0.0, 0.0, factor=3.0), reference=truth).passed


def test_the_floor_is_one_ulp_of_each_element() -> None:
    """The control may be exact by luck, so one rounding of each element is always allowed."""
    truth = np.float64([1.0, 1024.0, 0.0])
    control = F32(truth)
    for got in (truth * (1 + ULP), truth + np.array([0, 0, 1e-45])):
        assert compare(F32(got), control, EXACT, reference=truth).passed_by == "accuracy"
    for far in ([2 * ULP, 0, 0], [0, 2e3 * ULP, 0], [0, 0, 3e-45]):
        got = truth + np.array(far)
        assert not compare(F32(got), control, EXACT, reference=truth).passed


def test_without_control_expected_is_it() -> None:
    truth = np.float64([1 / 3])
    assert compare(F32(truth), F32(truth), reference=truth, mode="accuracy").passed
    found = compare(F32(truth + 10 * ULP), F32(truth), reference=truth, mode="accuracy")
    assert not found.passed


def test_mode_accuracy_has_no_tolerance_to_hide_behind() -> None:
    truth = np.float64([1e3])
    control = F32(truth)
    got = F32(truth * (1 + 8 * ULP))
    assert compare(got, control, reference=truth).passed_by == "tolerance"
    found = compare(got, control, reference=truth, mode="accuracy")
    assert (found.passed, found.mismatches) == (False, 0)
    assert found.worst is not None
    assert found.worst.index == (0,)


@pytest.mark.parametrize("wrong", [-1e-3, 0.0, 1.5e-3, 1.02e-3])
def test_a_large_elements_error_excuses_no_wrong_small_one(wrong: float) -> None:
    """The control's error at 1e6 is far larger than the whole small element."""
    truth = np.float64([1e6, 1e-3])
    control = F32(truth * [1 + 3 * ULP, 1])
    got = F32([control[0], wrong])
    assert abs(wrong - 1e-3) < abs(float(control[0]) - 1e6)
    found = compare(got, control, reference=truth, control=control)
    assert not found.passed
    assert found.worst is not None
    assert found.worst.index == (1,)


def test_only_elements_that_miss_the_tolerance_are_judged() -> None:
    truth = np.float64([1.0, 2.0, 0.1])
    control = F32(truth)
    got = F32([1.0, 2.0 * (1 + 5 * ULP), 0.1])
    loose = Tolerance(1e-5, 0.0)
    assert compare(got, control, loose, reference=truth).passed_by == "tolerance"
    got[0] = 1.5
    found = compare(got, control, loose, reference=truth)
    assert found.accuracy is not None
    assert (found.passed, found.accuracy.violations) == (False, 1)


def test_the_worst_element_is_the_one_that_breaks_the_rule() -> None:
    """Element 0 is further from expected, element 1 from the truth, where errors up to 0.04 are allowed."""
    truth = np.float64([1.0, 1.0])
    control = F32([1.02, 0.99])
    found = compare(F32([0.985, 0.958]), control, reference=truth, control=control)
    assert found.worst is not None
    assert (found.passed, found.worst.index) == (False, (1,))
    found = compare(F32([0.985, 0.962]), control, reference=truth, control=control)
    assert found.worst is not None
    assert (found.passed_by, found.worst.index) == ("accuracy", (0,))


def test_sums_in_another_order_are_a_close_call_that_passes() -> None:
    rng = np.random.default_rng(7)
    left, right = rng.standard_normal((32, 400)).astype(F32), rng.standard_normal((400, 32)).astype(F32)
    truth = left.astype(np.float64) @ right.astype(np.float64)
    control = left @ right
    got = sum(left[:, i : i + 50] @ right[i : i + 50] for i in range(0, 400, 50))
    assert not compare(got, control).passed
    assert compare(got, control, reference=truth, control=control).passed_by == "accuracy"
    halved = left.astype(np.float16).astype(F32) @ right
    assert not compare(halved, control, reference=truth, control=control).passed


@pytest.mark.parametrize(("steps", "rule"), [(60, "accuracy"), (80, None)])
def test_a_control_without_a_large_error_by_luck_is_measured_by_its_spread(
    steps: int, rule: str | None
) -> None:
    """The largest of 256 normal errors with a spread of 10 ULP would be about 30; twice that is allowed."""
    truth = np.full(256, 1.5)
    control = F32(truth + 10 * ULP * (np.arange(256) > 0))
    got = control.copy()
    got[7] = F32(truth[7] + steps * ULP)
    assert compare(got, control, EXACT, reference=truth).passed_by == rule


@pytest.mark.parametrize(("steps", "passed"), [(19, True), (-19, True), (21, False)])
def test_several_controls_show_the_largest_error(steps: int, passed: bool) -> None:
    """Their largest error, at another element, is 9 ULP, so 2 · 9 + 1 ULP are allowed."""
    truth = np.full(1000, 1.5)
    controls = [F32(truth), F32(truth)]
    controls[1][3] = F32(truth[3] + 9 * ULP)
    got = F32(truth)
    got[7] = F32(truth[7] + steps * ULP)
    found = compare(got, F32(truth), EXACT, reference=truth, control=controls[0], others=controls[1:])
    assert found.passed is passed
    assert found.accuracy is not None
    assert found.accuracy.control_ulp_error == 9
    assert not compare(got, F32(truth), EXACT, reference=truth, control=controls[0]).passed


@pytest.mark.parametrize(("steps", "passed"), [(66, True), (70, False)])
def test_several_controls_of_one_element_are_measured_by_their_spread(steps: int, passed: bool) -> None:
    """The largest of a thousand errors with a spread of 10 ULP would be 34.2; twice that is allowed."""
    truth = np.float64([1.5])
    controls = [F32(truth + sign * 10 * ULP) for sign in (1, -1, 1)]
    found = compare(
        F32(truth + steps * ULP), F32(truth), EXACT, reference=truth, control=controls[0], others=controls[1:]
    )
    assert found.passed is passed


@pytest.mark.parametrize("scale", [1e-300, 1e200])
def test_errors_whose_squares_leave_the_range_are_measured_by_the_largest(scale: float) -> None:
    truth = np.longdouble([1.5, 1.5]) * scale
    step = np.longdouble(2.0**-52) * scale
    control = (truth + np.array([3, 0]) * step).astype(np.float64)
    for steps, passed in ((7, True), (12, False)):
        got = (truth + np.array([steps, 0]) * step).astype(np.float64)
        assert compare(got, control, EXACT, reference=truth).passed is passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "complex128", "float8_e4m3fn"])
def test_every_floating_dtype(dtype: str) -> None:
    truth = np.array([1.0, -3.0, 0.5]).astype(np.clongdouble if dtype.startswith("c") else np.longdouble)
    control = truth.astype(dtype)
    found = compare(control, control, reference=truth, mode="accuracy")
    assert found.passed_by == "accuracy"
    assert not compare(-control, control, reference=truth, mode="accuracy").passed


def test_float64_against_longdouble() -> None:
    third = np.longdouble(1) / 3
    control = np.float64([third])
    near, far = np.nextafter(control, 1), control * (1 + 2.0**-50)
    assert compare(near, control, EXACT, reference=[third]).passed_by == "accuracy"
    found = compare(far, control, EXACT, reference=[third])
    assert not found.passed
    assert found.accuracy is not None
    if np.finfo(np.longdouble).nmant > np.finfo(np.float64).nmant:
        assert 0 < found.accuracy.control_ulp_error < 0.5


def test_byte_order_blocks_and_strides() -> None:
    truth = np.linspace(1, 2, 80_000).reshape(200, 400)
    control = truth.astype(">f4")
    got = truth.astype(F32)
    got[150, 3] += 40 * ULP
    found = compare(got.T, control.T, EXACT, reference=truth.T)
    assert found.worst is not None
    assert (found.passed, found.worst.index) == (False, (3, 150))


@pytest.mark.parametrize(
    ("got", "control", "truth", "passes"),
    [
        (np.inf, np.inf, np.inf, True),
        (np.nan, np.nan, np.nan, True),
        (np.inf, np.inf, 1e39, True),  # float32 has no 1e39
        (3.4e38, np.inf, 1e39, False),  # saturated
        (np.inf, 1.0, 1e39, True),
        (np.inf, np.inf, 1.0, True),  # overflows inside, as the control does
        (1.0, np.inf, 1.0, True),  # better than the control
        (2.0, np.inf, 1.0, False),
        (np.inf, 1.0, 1.0, False),
        (-np.inf, np.inf, np.inf, False),
        (np.nan, 1.0, 1.0, False),
        (np.nan, np.inf, np.inf, False),
        (1.0, np.nan, 1.0, True),
        (1.0, np.nan, np.nan, False),
    ],
)
@pytest.mark.parametrize("mode", ["allclose", "accuracy"])
def test_values_that_are_not_finite(
    got: float, control: float, truth: float, passes: bool, mode: str
) -> None:
    found = compare(F32([got, 1]), F32([control, 1]), reference=np.float64([truth, 1]), mode=mode)  # type: ignore[arg-type]
    assert found.passed is passes


def test_overflowing_with_the_control_is_no_worse() -> None:
    for other in (np.inf, np.nan):
        got = F32([other])
        found = compare(got, F32([1.0]), reference=[1.0], control=got)
        assert (found.passed_by, found.mismatches) == ("accuracy", 1)
        assert not compare(-got, F32([1.0]), reference=[1.0], control=F32([2.0])).passed


def test_nans_do_not_pass_where_the_tolerance_forbids_it() -> None:
    nan = F32([np.nan])
    strict = Tolerance(1.0, 1.0, equal_nan=False)
    assert not compare(nan, nan, strict, reference=nan.astype(np.float64)).passed


def test_a_required_sign_of_zero_has_no_excuse() -> None:
    got, want = F32([-0.0, 1.0]), F32([0.0, 1.0])
    strict = Tolerance(1e-3, 1e-3, signed_zero=True)
    for mode in ("allclose", "accuracy"):
        found = compare(got, want, strict, reference=want.astype(np.float64), mode=mode)  # type: ignore[arg-type]
        assert not found.passed
        assert found.accuracy is not None
        assert found.accuracy.violations == 1


def test_exact_mode_takes_no_excuse() -> None:
    truth = np.float64([1.0])
    found = compare(F32([1 + ULP]), F32([1.0]), reference=truth, control=F32([2.0]), mode="exact")
    assert (found.passed, found.accuracy) == (False, None)


def test_shape_and_dtype_come_first() -> None:
    assert not compare(F32([1.0]), np.float64([1.0]), reference=[1.0], mode="accuracy").passed
    assert not compare(F32([[1.0]]), F32([1.0]), reference=[1.0], mode="accuracy").passed


def test_empty_arrays_have_no_error() -> None:
    empty = np.zeros((0, 2), F32)
    assert compare(empty, empty, reference=empty.astype(np.float64), mode="accuracy").passed_by == "accuracy"


def test_misuse_is_refused() -> None:
    one = F32([1.0])
    with pytest.raises(ValueError, match="mode accuracy needs a reference"):
        compare(one, one, mode="accuracy")
    with pytest.raises(ValueError, match=r"the reference has shape \[1, 1\], expected has \[1\]"):
        compare(one, one, reference=[[1.0]])
    with pytest.raises(ValueError, match=r"the control has shape \[2\]"):
        compare(one, one, reference=[1.0], control=F32([1, 1]))
    with pytest.raises(ValueError, match="the reference is complex"):
        compare(one, one, reference=[1j])


def test_judged_apiece_each_element_has_the_controls_own_error() -> None:
    """The control is 3 ULP off at the first element and exact at the second, which is small."""
    truth = np.float64([1.5, 1.5e-3])
    control = F32(truth + np.array([3 * ULP, 0]))
    step = float(np.spacing(control[1]))

    def judged(first: float, second: float, **options: bool) -> str | None:
        got = F32([truth[0] + first * ULP, float(control[1]) + second * step])
        return compare(got, control, EXACT, reference=truth, control=control, **options).passed_by

    assert judged(7, 1, apiece=True) == "accuracy"
    assert judged(8, 1, apiece=True) is None
    assert judged(7, 3, apiece=True) is None
    assert judged(7, 3) == "accuracy"


def test_an_overflow_of_the_control_excuses_nothing_apiece() -> None:
    truth = np.float64([1e5])
    control = np.float16(truth)
    assert compare(control, control, EXACT, reference=truth, apiece=True).passed
    assert not compare(np.float16([6e4]), control, EXACT, reference=truth, apiece=True).passed
