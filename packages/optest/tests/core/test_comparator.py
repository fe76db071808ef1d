"""The comparator must fail what is wrong: one test for each way of being fooled."""

import numpy as np
import pytest

from optest.core import EXACT, Comparison, Tolerance, compare

F32 = np.float32
FLOATS = ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"]
COMPLEX = ["complex64", "complex128"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "int4", "uint4"]


def array(values: object, dtype: str = "float32") -> np.ndarray:
    return np.asarray(values, np.float64).astype(dtype)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX, *INTEGERS, "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_equal_arrays_pass(dtype: str, shape: tuple[int, ...]) -> None:
    values = (np.arange(np.prod(shape, dtype=int)) % 7).reshape(shape).astype(dtype)
    found = compare(values, values.copy())
    assert found.passed
    assert (found.count, found.mismatches, found.max_abs, found.worst) == (values.size, 0, 0, None)


@pytest.mark.parametrize("dtype", [*FLOATS, *COMPLEX])
@pytest.mark.parametrize("value", [1.0, -1.0, 0.25])
def test_wrong_sign(dtype: str, value: float) -> None:
    found = compare(array([value, -value], dtype), array([value, value], dtype))
    assert not found.passed
    assert (found.mismatches, found.sign_mismatches) == (1, 1)
    assert found.worst is not None
    assert (found.worst.index, found.worst.abs_error) == ((1,), 2 * abs(value))


@pytest.mark.parametrize("dtype", FLOATS)
def test_negative_goldens_are_no_free_pass(dtype: str) -> None:
    """``abs(v - g) / g > tolerance`` is never true for a negative g."""
    assert not compare(array([-4.0], dtype), array([-1.0], dtype)).passed
    assert not compare(array([4.0], dtype), array([-1.0], dtype)).passed


def test_golden_of_zero_has_only_the_absolute_tolerance() -> None:
    assert not compare(array([1e-3]), array([0.0])).passed
    assert compare(array([0.9e-5]), array([0.0])).passed
    found = compare(array([2.0, 3.0]), array([0.0, 3.0]), Tolerance(10.0, 0.0))
    assert (found.mismatches, found.max_abs, found.max_rel) == (1, 2.0, 0.0)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2", *COMPLEX])
def test_nan_against_a_number(dtype: str) -> None:
    nan, one = array([np.nan, 1], dtype), array([1, 1], dtype)
    for got, want in ((nan, one), (one, nan)):
        found = compare(got, want, Tolerance(1e9, 1e9))
        assert not found.passed
        assert (found.mismatches, found.nan_mismatches) == (1, 1)
        assert (found.max_abs, found.max_rel, found.max_ulp) == (0, 0, 0)
        assert found.worst is not None
        assert found.worst.index == (0,)
        assert found.worst.ulp_error is None


def test_nan_against_infinity_is_a_nan_disagreement() -> None:
    found = compare(array([np.nan]), array([np.inf]))
    assert (found.mismatches, found.nan_mismatches, found.inf_mismatches) == (1, 1, 0)


@pytest.mark.parametrize("payload", [0x7FC00000, 0xFFC00000, 0x7F800001])
def test_nans_agree_whatever_their_bits(payload: int) -> None:
    nan = np.array([payload], np.uint32).view(F32)
    assert compare(nan, array([np.nan])).passed
    assert compare(nan, array([np.nan]), mode="exact").passed
    strict = compare(nan, array([np.nan]), Tolerance(1.0, 1.0, equal_nan=False))
    assert (strict.passed, strict.nan_mismatches) == (False, 1)


def test_a_complex_nan_is_one_in_either_part() -> None:
    nan = np.array([complex(np.nan, 1)], np.complex64)
    assert compare(nan, np.array([complex(2, np.nan)], np.complex64)).passed
    assert not compare(nan, np.array([complex(2, 1)], np.complex64)).passed


@pytest.mark.parametrize("other", [3.4e38, -np.inf, 0.0, 1.0])
def test_infinity_against_anything_else(other: float) -> None:
    for got, want in ((np.inf, other), (other, np.inf)):
        found = compare(array([got]), array([want]), Tolerance(1e30, 1e30))
        assert not found.passed
        assert (found.inf_mismatches, found.max_abs) == (1, np.inf)
        assert found.max_rel == (np.inf if np.isfinite(want) and want != 0 else 0)
        assert compare(array([got]), array([got])).passed
    assert compare(array([np.inf, 1]), array([np.inf, 2])).inf_mismatches == 0
    assert compare(array([1, 3]), array([np.inf, 2])).max_rel == 0.5


def test_infinite_part_of_a_complex_number() -> None:
    want = np.array([complex(np.inf, 1)], np.complex64)
    assert compare(want, want).passed
    assert not compare(np.array([complex(np.inf, 2)], np.complex64), want).passed
    assert not compare(np.array([complex(1, np.inf)], np.complex64), want).passed


def test_overflowing_difference_is_a_mismatch() -> None:
    largest = np.finfo(np.float64).max
    found = compare(array([largest], "float64"), array([-largest], "float64"), Tolerance(1.9, 0.0))
    assert (found.passed, found.max_abs, found.inf_mismatches) == (False, np.inf, 0)


def test_a_huge_limit_excuses_no_infinity() -> None:
    largest = np.finfo(np.float64).max
    assert not compare(array([np.inf], "float64"), array([largest], "float64"), Tolerance(10.0, 0.0)).passed


def test_signed_zero_is_counted_and_on_request_strict() -> None:
    got, want = array([-0.0, 0.0, 1.0]), array([0.0, 0.0, 1.0])
    assert compare(got, want).passed
    assert compare(got, want).signed_zero_mismatches == 1
    for found in (
        compare(got, want, Tolerance(1e-3, 1e-3, signed_zero=True)),
        compare(got, want, mode="exact"),
    ):
        assert (found.passed, found.mismatches, found.max_abs, found.max_ulp) == (False, 1, 0, 0)
        assert found.worst is not None
        assert found.worst.index == (0,)
    assert not compare(got.astype("complex64"), want.astype("complex64"), mode="exact").passed


def test_zero_against_a_small_number_has_no_wrong_sign() -> None:
    found = compare(array([0.0, -1e-9]), array([-1e-9, 0.0]))
    assert (found.sign_mismatches, found.signed_zero_mismatches) == (0, 0)


def test_a_real_mismatch_outranks_a_signed_zero() -> None:
    found = compare(array([-0.0, 1.5]), array([0.0, 1.0]), mode="exact")
    assert found.mismatches == 2
    assert found.worst is not None
    assert found.worst.index == (1,)
    got, want = np.array([complex(1, 1.5), complex(-0.0, 9)]), np.array([complex(1, 1), complex(0.0, 1)])
    found = compare(got, want, mode="exact")
    assert found.worst is not None
    assert (found.mismatches, found.worst.index) == (2, (1,))


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_off_by_one_at_the_extremes(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    want = np.array([low, high], dtype)
    for got in (np.array([low, high - 1], dtype), np.array([low + 1, high], dtype)):
        found = compare(got, want, Tolerance(1.0, 1.0))
        assert (found.passed, found.mismatches, found.max_abs, found.max_ulp) == (False, 1, 1, None)
    across = compare(want[::-1], want)
    assert across.max_abs == 2**64 - 1
    assert across.sign_mismatches == (2 if dtype == "int64" else 0)
    assert across.worst is not None
    assert (across.worst.actual, across.worst.expected) == (high, low)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("mode", ["allclose", "accuracy", "exact"])
def test_integers_are_exact_in_every_mode(dtype: str, mode: str) -> None:
    got, want = np.array([1, 2]).astype(dtype), np.array([1, 3]).astype(dtype)
    found = compare(got, want, Tolerance(1e3, 1e3), reference=got, mode=mode)  # type: ignore[arg-type]
    assert (found.passed, found.mismatches, found.max_abs, found.tolerance) == (False, 1, 1, EXACT)
    assert compare(want, want, mode=mode).passed_by == "exact"  # type: ignore[arg-type]


def test_bools() -> None:
    found = compare(np.array([True, False, True]), np.array([True, True, True]), Tolerance(1.0, 1.0))
    assert (found.passed, found.mismatches, found.max_abs) == (False, 1, 1)
    assert found.worst is not None
    assert (found.worst.index, found.worst.actual, found.worst.expected) == ((1,), False, True)


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ("float32", "float64"),
        ("float64", "float32"),
        ("bfloat16", "float16"),
        ("int32", "int64"),
        ("uint8", "int8"),
        ("bool", "uint8"),
        ("float32", "complex64"),
        ("object", "float32"),
        ("str", "float32"),
    ],
)
def test_another_dtype_fails_whatever_the_values(got: str, want: str) -> None:
    found = compare(np.ones(3, got), np.ones(3, want), Tolerance(1e9, 1e9))
    assert not found.passed
    assert (found.count, found.worst) == (0, None)
    assert f"expected {np.dtype(want).name}" in found.summary()


@pytest.mark.parametrize(
    ("got", "want"),
    [((3, 1), (1, 3)), ((3, 1), (3,)), ((), (1,)), ((0,), (0, 1)), ((1,), (4,)), ((6,), (2, 3))],
)
def test_shapes_never_broadcast(got: tuple[int, ...], want: tuple[int, ...]) -> None:
    found = compare(np.ones(got), np.ones(want))
    assert not found.passed
    assert found.summary() == f"mismatch: shape {list(got)}, expected {list(want)}"


def test_byte_order_and_strides_do_not_matter() -> None:
    values = np.arange(24, dtype=F32).reshape(2, 3, 4)
    assert compare(values.astype(">f4"), values).passed
    assert compare(np.asfortranarray(values), values, mode="exact").passed
    assert compare(values.transpose(2, 0, 1)[::-1], values.transpose(2, 0, 1)[::-1].copy()).passed
    assert compare(np.broadcast_to(F32(1), (5, 5)), np.ones((5, 5), F32)).passed
    assert compare(np.arange(5, dtype=">i8"), np.arange(5)).passed


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("index", [(0, 0), (299, 399), (120, 77)])
def test_worst_index_in_arrays_of_many_blocks(transposed: bool, index: tuple[int, int]) -> None:
    want = np.ones((300, 400), ">f4")
    got = want.copy()
    got[0, 1] += 1e-3
    got[index] = -5
    if transposed:
        got, want, index = got.T, want.T, index[::-1]
    found = compare(got, want)
    assert found.worst is not None
    assert (found.mismatches, found.worst.index) == (2, index)
    assert (found.worst.actual, found.worst.expected, found.worst.abs_error) == (-5.0, 1.0, 6.0)


def test_arguments_are_left_alone() -> None:
    got, want = array([np.nan, -0.0, np.inf, 1.0]), array([1.0, 0.0, np.inf, 1.5])
    before = got.tobytes(), want.tobytes()
    got.setflags(write=False)
    compare(got, want, reference=want.astype("float64"))
    assert (got.tobytes(), want.tobytes()) == before


def test_metrics() -> None:
    found = compare(array([1.0, 2.0, -3.0, 4.5]), array([1.0, 2.5, 3.0, 4.0]))
    assert (found.count, found.mismatches, found.mismatch_share) == (4, 3, 0.75)
    assert (found.max_abs, found.max_rel) == (6.0, 2.0)
    assert found.max_ulp == 2 * int(F32(3.0).view(np.int32))
    assert found.passed_by is None


def test_the_closest_call_of_a_passing_array() -> None:
    found = compare(array([100.0, 1e-6, 5.0]), array([100.0001, 0.0, 5.0]))
    assert found.passed_by == "tolerance"
    assert found.worst is not None
    assert found.worst.index == (1,)


def test_denormals_have_steps() -> None:
    assert compare(array([1e-45]), array([0.0]), EXACT).max_ulp == 1
    assert not compare(array([1e-45]), array([0.0]), EXACT).passed


def test_complex_is_judged_by_its_modulus() -> None:
    want = np.array([complex(1, 1e-7)], np.complex64)
    assert compare(np.array([complex(1, 2e-7)], np.complex64), want, Tolerance(1e-6, 0.0)).passed
    assert not compare(np.array([complex(1, 2e-6)], np.complex64), want, Tolerance(1e-6, 0.0)).passed


def test_scalars_and_lists_are_arrays() -> None:
    assert compare(1.0, np.float64(1.0)).passed
    assert compare([1, 2], np.array([1, 2])).passed


@pytest.mark.parametrize("dtype", ["longdouble", "clongdouble", "object", "S3", "datetime64[s]", "i4,i4"])
def test_what_cannot_be_compared_is_refused(dtype: str) -> None:
    values = np.zeros(2, dtype)
    with pytest.raises(TypeError, match="cannot compare elements of dtype"):
        compare(values, values)


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown mode 'close'; there are allclose, accuracy, exact"):
        compare(1.0, 1.0, mode="close")  # type: ignore[arg-type]


def test_the_result_is_immutable() -> None:
    found = compare(1.0, 1.0)
    assert isinstance(found, Comparison)
    with pytest.raises(AttributeError):
        found.mismatches = 0  # type: ignore[misc]
