"""Default tolerances and the table of overrides."""

import json
import pickle

import numpy as np
import pytest

from optest.core.tolerance import EXACT, Tolerance, ToleranceTable, default_tolerance


@pytest.mark.parametrize(
    ("name", "rtol", "atol"),
    [
        ("float16", 1e-3, 1e-5),
        ("bfloat16", 1.6e-2, 1e-5),
        ("float32", 1.3e-6, 1e-5),
        ("float64", 1e-7, 1e-7),
        ("complex64", 1.3e-6, 1e-5),
        ("complex128", 1e-7, 1e-7),
        ("float8_e4m3fn", 0.125, 2**-9),
        ("float8_e5m2", 0.25, 2**-16),
    ],
)
def test_defaults(name: str, rtol: float, atol: float) -> None:
    found = default_tolerance(name)
    assert (found.rtol, found.atol) == (rtol, atol)
    assert default_tolerance(np.dtype(name)) == found


def test_defaults_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch.testing._comparison import default_tolerances

    for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128"):
        ours = default_tolerance(name)
        assert (ours.rtol, ours.atol) == default_tolerances(getattr(torch, name)), name


@pytest.mark.parametrize("name", ["bool", "int8", "uint64", "int4", "float8_e8m0fnu", "float4_e2m1fn"])
def test_what_is_exact(name: str) -> None:
    assert default_tolerance(name) == EXACT


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_eight_bit_formats_are_allowed_their_neighbours(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8).view(name).astype(np.float64)
    values = np.unique(codes[np.isfinite(codes)])
    limit = default_tolerance(name)
    reach = limit.atol + limit.rtol * np.abs(values)
    assert (np.diff(values) <= reach[:-1]).all()
    assert (np.diff(values) <= reach[1:]).all()
    normal = values[np.abs(values) >= 1]
    steps = np.abs(normal[2:] - normal[:-2])
    assert (steps > 0.75 * (limit.atol + limit.rtol * np.abs(normal[2:]))).all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rtol", -1e-3),
        ("atol", float("nan")),
        ("atol", float("inf")),
        ("rtol", "1e-3"),
        ("factor", 0.5),
        ("equal_nan", "yes"),
    ],
)
def test_impossible_values_are_named(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value!r}; give"):
        Tolerance(**{"rtol": 0.0, "atol": 0.0, field: value})  # type: ignore[arg-type]


TABLE = ToleranceTable(
    dtypes={"float32": {"atol": 2e-5}},
    categories={"gemm": {"*": {"rtol": 1e-2}, "float32": {"rtol": 1e-3}}},
    operators={"exp": {"*": {"factor": 3.0}, "complex64": {"rtol": 0.5}}},
)


def test_the_more_specific_wins_field_by_field() -> None:
    assert TABLE.lookup("float64") == default_tolerance("float64")
    assert TABLE.lookup("float32") == Tolerance(1.3e-6, 2e-5)
    assert TABLE.lookup("float32", category="gemm") == Tolerance(1e-3, 2e-5)
    assert TABLE.lookup("float16", category="gemm") == Tolerance(1e-2, 1e-5)
    both = TABLE.with_operator("matmul", "float32", rtol=1e-4)
    assert both.lookup("float32", operator="matmul", category="gemm") == Tolerance(1e-4, 2e-5)
    assert both.lookup("float32", operator="mm", category="gemm") == Tolerance(1e-3, 2e-5)


def test_complex_follows_its_parts_unless_named() -> None:
    assert TABLE.lookup("complex64", category="gemm") == Tolerance(1e-3, 2e-5)
    assert TABLE.lookup("complex64", operator="exp") == Tolerance(0.5, 2e-5, factor=3.0)
    every = TABLE
    for dtype, rtol in (("complex64", 0.3), ("float32", 0.2), ("*", 0.1)):
        every = every.with_operator("mul", dtype, rtol=rtol)
    assert every.lookup("complex64", operator="mul").rtol == 0.3
    assert every.lookup("float32", operator="mul").rtol == 0.2
    assert every.lookup("complex128", operator="mul").rtol == 0.1
    assert TABLE.lookup(">f4", operator="exp") == Tolerance(1.3e-6, 2e-5, factor=3.0)


def test_integers_stay_exact() -> None:
    assert TABLE.with_operator("argmax", rtol=1.0).lookup("int64", operator="argmax") == EXACT


def test_copies_leave_the_original_alone() -> None:
    changed = TABLE.with_category("gemm", atol=1.0).with_operator("exp", rtol=1.0)
    assert changed.lookup("float16", category="gemm") == Tolerance(1e-2, 1.0)
    assert changed.lookup("float64", operator="exp") == Tolerance(1.0, 1e-7, factor=3.0)
    assert TABLE.lookup("float16", category="gemm") == Tolerance(1e-2, 1e-5)


def test_round_trips() -> None:
    assert ToleranceTable.from_dict(json.loads(json.dumps(TABLE.to_dict()))) == TABLE
    assert pickle.loads(pickle.dumps(TABLE)) == TABLE


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"operator": {}}, "unknown section 'operator'"),
        ({"dtypes": {"float31": {}}}, "dtypes names the dtype 'float31'"),
        ({"dtypes": {"f4": {}}}, "dtypes names the dtype 'f4'"),
        ({"operators": {"exp": {"*": {"tol": 1}}}}, r"operators.exp.\* sets 'tol'; a tolerance has rtol"),
        ({"categories": {"gemm": {"*": {"rtol": -1}}}}, r"categories.gemm.\*: rtol is -1"),
        ({"operators": {"exp": {"float32": {"rtol": "1e-3"}}}}, "operators.exp.float32: rtol is '1e-3'"),
        ({"operators": ["exp"]}, "operators is .* must be a mapping"),
        ({"operators": {"exp": 1e-3}}, "operators.exp is 0.001; it must be a mapping"),
        ({"operators": {"exp": {"*": 1e-3}}}, r"operators.exp.\* is 0.001; it must be a mapping"),
    ],
)
def test_mistakes_in_a_table_say_where(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ToleranceTable.from_dict(data)
