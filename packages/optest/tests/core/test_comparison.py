"""The text and the JSON form of comparisons."""

import json
import pickle

import numpy as np
import pytest

from optest.core import Comparison, Tolerance, compare

F32 = np.float32


WITHIN = "within rtol 1.3e-06, atol 1e-05"


@pytest.mark.parametrize(
    ("found", "parts"),
    [
        (compare(F32([1, 2]), F32([1, 2])), ["passed: 2 float32 elements, ", WITHIN]),
        (
            compare(F32([1 + 2**-22]), F32([1])),
            ["passed: 1 float32 element, ", WITHIN, " (max abs 2.38e-07, 2 ULP)"],
        ),
        (compare(np.arange(3), np.arange(3)), ["passed: 3 int64 elements, equal"]),
        (
            compare(F32([[1, 2], [3, 4]]), F32([[1, 2], [3.5, 4]])),
            [
                f"mismatch: 1 of 4 float32 elements (25 %) not {WITHIN}; ",
                "worst at [1, 0]: actual 3.0, expected 3.5 (abs 0.5, 2097152 ULP)",
            ],
        ),
        (
            compare(np.array([7, 8]), np.array([7, 9])),
            [
                "mismatch: 1 of 2 int64 elements (50 %) not equal; ",
                "worst at [1]: actual 8, expected 9 (abs 1)",
            ],
        ),
        (
            compare(F32([-0.0]), F32([0.0]), mode="exact"),
            [
                "mismatch: 1 of 1 float32 element (100 %) not equal; ",
                "worst at [0]: actual -0.0, expected 0.0 (abs 0, 0 ULP)",
            ],
        ),
        (
            compare(np.ones((3, 1)), np.ones((1, 3), F32)),
            ["mismatch: shape [3, 1], expected [1, 3]; dtype float64, expected float32"],
        ),
        (
            compare(F32([2]), F32([1.5]), reference=[1.75]),
            [
                "passed by accuracy: 1 float32 element, error 0.25 (2.1e+06 ULP) against the reference, ",
                "control's 0.25 (2.1e+06 ULP), limit 2 times",
            ],
        ),
        (
            compare(F32([2]), F32([1]), reference=[1.0], mode="accuracy"),
            [
                "mismatch: 1 of 1 float32 element, error 1 (8.39e+06 ULP) against the reference, ",
                "control's 0 (0 ULP), limit 2 times; ",
                "worst at [0]: actual 2.0, expected 1.0 (abs 1, 8388608 ULP)",
            ],
        ),
    ],
)
def test_summary(found: Comparison, parts: list[str]) -> None:
    assert found.summary() == "".join(parts)


def test_description_adds_the_metrics() -> None:
    got, want = F32([np.nan, np.inf, -1, -0.0, 1]), F32([1, 2, 1, 0, 1])
    found = compare(got, want, reference=want.astype(np.float64))
    assert found.describe().splitlines() == [
        found.summary(),
        "  shape [5], dtype float32, mode allclose",
        "  largest errors: absolute inf, relative inf, 2130706432 ULP",
        "  disagreements: NaN 1, infinity 1, sign 1, sign of zero 1",
        f"  accuracy: {found.accuracy.text() if found.accuracy else None}: 3 elements break it",
    ]


def test_description_of_a_pass_names_the_closest_call() -> None:
    found = compare(F32([2, 1 + 2**-23]), F32([2, 1]))
    assert found.describe().splitlines()[-1] == (
        "  closest call at [1]: actual 1.0000001192092896, expected 1.0 (abs 1.19e-07, 1 ULP)"
    )
    assert len(compare(F32([1]), F32([1])).describe().splitlines()) == 2
    assert len(compare(F32([1]), F32([[1]])).describe().splitlines()) == 1


def test_json_is_strict_and_complete() -> None:
    found = compare(np.array([complex(np.nan, -np.inf), 1]), np.array([1, 1 + 0j]), Tolerance(0.5, 0.0))
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (data["passed"], data["passed_by"], data["mismatch_share"]) == (False, None, 0.5)
    assert data["tolerance"]["rtol"] == 0.5
    assert data["worst"]["actual"] == {"real": "nan", "imag": "-inf"}
    assert data["worst"]["expected"] == {"real": 1.0, "imag": 0.0}
    assert data["worst"]["index"] == [0]
    assert compare(F32([np.inf]), F32([1])).to_dict()["max_abs"] == "inf"


def test_large_integers_survive_json() -> None:
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    data = json.loads(json.dumps(compare(np.array([low]), np.array([high])).to_dict()))
    assert (data["max_abs"], data["worst"]["actual"]) == (2**64 - 1, low)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "bool", "complex64", ">f8"])
def test_values_are_plain_python(dtype: str) -> None:
    found = compare(np.array([0, 1]).astype(dtype), np.array([1, 1]).astype(dtype))
    assert found.worst is not None
    assert type(found.worst.actual) in (bool, int, float, complex)
    json.dumps(found.to_dict(), allow_nan=False)


def test_it_crosses_processes() -> None:
    found = compare(F32([1]), F32([2]), reference=[2.0])
    assert pickle.loads(pickle.dumps(found)) == found
