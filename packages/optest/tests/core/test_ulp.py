"""ULP distance and size, checked against NumPy's own neighbours and by exhaustion."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optest.core.ulp import ordered, ulp_distance, ulp_size

EIGHT_BIT = [
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e4m3b11fnuz",
    "float8_e4m3",
    "float8_e3m4",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
]
SIXTEEN_BIT = ["float16", "bfloat16"]


def every_number(name: str) -> np.ndarray:
    """Return all values of an 8- or 16-bit format except NaN, ascending, with a single zero."""
    dtype = np.dtype(name)
    codes = np.arange(1 << (8 * dtype.itemsize), dtype=f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = np.unique(codes.astype(np.float64))
    return values[~np.isnan(values)].astype(dtype)


@pytest.mark.parametrize("name", EIGHT_BIT + SIXTEEN_BIT)
def test_neighbours_are_one_apart_across_zero_denormals_and_infinity(name: str) -> None:
    values = every_number(name)
    assert (np.diff(ordered(values)) == 1).all()
    assert (ulp_distance(values[1:], values[:-1]) == 1).all()


@pytest.mark.parametrize("name", ["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
def test_formats_narrower_than_their_storage(name: str) -> None:
    codes = np.arange(1 << ml_dtypes.finfo(name).bits, dtype=np.uint8).view(name)
    values = np.unique(codes.astype(np.float64)).astype(name)
    assert (np.diff(ordered(values)) == 1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0.0, 1.0, -1.0, 2.0, 1e-40, -5e-324, 3e38, np.inf])
def test_nextafter_is_one_step(dtype: type, start: float) -> None:
    value = np.asarray(start, dtype)
    below = np.nextafter(value, dtype(-np.inf))
    assert ulp_distance(value, below) == 1
    assert ordered(below) < ordered(value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_both_zeros_are_one_place(dtype: type) -> None:
    plus, minus = np.asarray(0.0, dtype), np.asarray(-0.0, dtype)
    assert ulp_distance(plus, minus) == 0
    tiny = np.asarray(ml_dtypes.finfo(dtype).smallest_subnormal, dtype)
    assert ulp_distance(tiny, -tiny) == 2


def test_the_whole_float64_line_does_not_overflow() -> None:
    distance = ulp_distance(np.asarray(np.inf), np.asarray(-np.inf))
    assert int(distance) == 2 * 0x7FF0000000000000


def test_complex_takes_the_larger_part() -> None:
    one = np.complex64(complex(1, 1))
    moved = np.complex64(complex(1 + 2**-23, 1 + 3 * 2**-23))
    assert ulp_distance(np.asarray(moved), np.asarray(one)) == 3


def test_strides_and_byte_order_do_not_matter() -> None:
    values = np.linspace(-1, 1, 24, dtype=np.float32).reshape(4, 6)
    assert (ordered(values.astype(">f4").T[::-1]) == ordered(values).T[::-1]).all()
    assert ordered(np.asarray(1.0, ">f8")).shape == ()


def test_other_dtypes_are_refused() -> None:
    with pytest.raises(TypeError, match="only real floating values"):
        ordered(np.arange(3))
    with pytest.raises(TypeError, match="one dtype, got float32 and float64"):
        ulp_distance(np.zeros(1, np.float32), np.zeros(1))


@given(st.floats(width=32, allow_nan=False), st.floats(width=32, allow_nan=False))
def test_distance_is_symmetric_and_order_is_kept(left: float, right: float) -> None:
    one, other = np.float32([left]), np.float32([right])
    assert ulp_distance(one, other) == ulp_distance(other, one)
    assert (ordered(one) < ordered(other)) == (one < other)
    assert (ulp_distance(one, other) == 0) == (left == right)


@given(*[st.floats(allow_nan=False)] * 3)
def test_distances_add_up_along_the_line(a: float, b: float, c: float) -> None:
    low, middle, high = sorted([a, b, c])
    first, second, whole = (
        int(ulp_distance(np.float64([x]), np.float64([y]))[0])
        for x, y in ((low, middle), (middle, high), (low, high))
    )
    assert first + second == whole


@pytest.mark.parametrize("name", EIGHT_BIT + SIXTEEN_BIT)
def test_size_is_the_gap_upwards(name: str) -> None:
    values = every_number(name).astype(np.float64)
    values = values[(values >= 0) & np.isfinite(values)]
    assert (ulp_size(values[:-1], np.dtype(name)) == np.diff(values)).all()


def test_size_agrees_with_numpy_spacing() -> None:
    values = np.float32([0, 1e-45, 1e-40, 1e-38, 0.1, 1, 3, 1e10])
    assert (ulp_size(values, values.dtype) == np.spacing(values)).all()
    assert (ulp_size(values.astype(np.longdouble), values.dtype) == np.spacing(values)).all()


def test_size_stays_finite_where_values_do_not() -> None:
    top = 2.0 ** (127 - 23)
    sizes = ulp_size(np.array([1e39, np.inf, np.nan]), np.dtype(np.complex64))
    assert (sizes == top).all()
