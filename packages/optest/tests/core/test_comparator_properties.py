"""Properties that hold for any data (hypothesis), and agreement with torch.testing.assert_close."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from optest.core import Tolerance, compare, default_tolerance
from optest.core.dtypes import kind_of

DTYPES = ["float16", "bfloat16", "float32", "float64", "complex64", "int64", "uint8", "bool", "float8_e5m2"]
SHAPES = arrays_of.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@st.composite
def arrays(draw: st.DrawFn, names: list[str], min_size: int = 0) -> np.ndarray:
    """Draw an array of arbitrary bits in one of the dtypes, sometimes transposed."""
    dtype = np.dtype(draw(st.sampled_from(names)))
    shape = draw(SHAPES.filter(lambda shape: np.prod(shape) >= min_size))
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    values = (raw % 2).view(dtype) if dtype.kind == "b" else raw.view(dtype)
    values = values.reshape(shape)
    return values.T if draw(st.booleans()) else values


@given(arrays(DTYPES))
def test_everything_equals_itself_in_every_mode(values: np.ndarray) -> None:
    for mode in ("allclose", "exact"):
        found = compare(values, values.copy(), mode=mode)  # type: ignore[arg-type]
        assert (found.passed, found.mismatches, found.worst) == (True, 0, None)
    assert compare(values, values, reference=values, mode="accuracy").passed


@given(arrays(["float16", "bfloat16", "float32", "float64", "float8_e5m2"], min_size=1), st.data())
def test_a_perturbation_beyond_the_tolerance_fails(values: np.ndarray, data: st.DataObject) -> None:
    limit = default_tolerance(values.dtype)
    index = tuple(data.draw(st.integers(0, side - 1)) for side in values.shape)
    want = float(values[index])
    reach = limit.atol + limit.rtol * abs(want)
    moved = want + data.draw(st.sampled_from([-1, 1])) * reach * data.draw(st.floats(1.001, 1e6))
    changed = values.copy()
    with np.errstate(over="ignore"):
        changed[index] = np.asarray(moved).astype(values.dtype)
    beyond = not abs(float(changed[index]) - want) <= reach and changed[index] != values[index]
    beyond &= not (np.isnan(want) and np.isnan(float(changed[index])))
    found = compare(changed, values)
    assert found.passed is not bool(beyond)
    assert found.mismatches == beyond
    if beyond:
        assert found.worst is not None
        assert found.worst.index == index


@given(arrays(["int64", "uint8"], min_size=1), st.data())
def test_any_changed_integer_fails(values: np.ndarray, data: st.DataObject) -> None:
    index = tuple(data.draw(st.integers(0, side - 1)) for side in values.shape)
    info = np.iinfo(values.dtype)
    other = data.draw(st.integers(int(info.min), int(info.max)).filter(lambda one: one != values[index]))
    changed = values.copy()
    changed[index] = other
    found = compare(changed, values)
    assert (found.passed, found.mismatches) == (False, 1)
    assert found.max_abs == abs(other - int(values[index]))


@given(arrays(DTYPES, min_size=1), arrays(DTYPES, min_size=1))
def test_counts_agree_in_both_directions(left: np.ndarray, right: np.ndarray) -> None:
    one, other = compare(left, right, mode="exact"), compare(right, left, mode="exact")
    assert one.passed == other.passed
    for name in ("mismatches", "max_abs", "max_ulp", "nan_mismatches", "inf_mismatches", "sign_mismatches"):
        assert getattr(one, name) == getattr(other, name), name


@given(arrays(DTYPES, min_size=1), st.floats(0, 1), st.floats(0, 1))
def test_a_wider_tolerance_never_fails_more(values: np.ndarray, tight: float, wide: float) -> None:
    tight, wide = sorted([tight, wide])
    other = np.roll(values, 1)
    narrow, broad = (compare(other, values, Tolerance(one, one)) for one in (tight, wide))
    assert broad.mismatches <= narrow.mismatches


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"])
@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.0, 0.3, 0.9, 1.1, 3.0]))
def test_verdict_is_that_of_torch(name: str, seed: int, scale: float) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(seed)
    limit = default_tolerance(name)
    want = rng.standard_normal((2, 3)) * 10.0 ** rng.integers(-6, 4, (2, 3))
    if kind_of(np.dtype(name)) == "complex":
        want = want * np.exp(2j * np.pi * rng.random(want.shape))
    # Errors stay well away from the limit, because torch computes in the dtype itself.
    got = want + scale * (limit.atol + limit.rtol * np.abs(want)) * rng.choice([-1, 1], want.shape)
    specials = rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf], want.shape)
    chosen = rng.random(want.shape) < 0.2
    want, got = np.where(chosen, specials, want), np.where(chosen & (rng.random() < 0.8), specials, got)
    wide = torch.from_numpy(got), torch.from_numpy(want)
    ours = tuple(array.astype(name) for array in (got, want))
    theirs = tuple(tensor.to(getattr(torch, name)) for tensor in wide)
    if _near_the_limit(*ours, limit):
        return
    try:
        torch.testing.assert_close(*theirs, equal_nan=True)
        verdict = True
    except AssertionError:
        verdict = False
    assert compare(*ours).passed is verdict


def _near_the_limit(got: np.ndarray, want: np.ndarray, limit: Tolerance) -> bool:
    """Whether rounding in the dtype itself could turn an element's verdict."""
    got, want = got.astype(np.complex128), want.astype(np.complex128)
    with np.errstate(invalid="ignore"):
        share = np.abs(got - want) / (limit.atol + limit.rtol * np.abs(want))
    return bool(((share > 0.95) & (share < 1.05)).any())


def test_torch_is_asked_about_both_verdicts() -> None:
    """Torch gives both verdicts, so the comparison above does not consist of passes only."""
    torch = pytest.importorskip("torch")
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.1])
    torch.testing.assert_close(one, one.clone())
    with pytest.raises(AssertionError):
        torch.testing.assert_close(other, one)
    assert compare(one.numpy(), one.numpy()).passed
    assert not compare(other.numpy(), one.numpy()).passed
