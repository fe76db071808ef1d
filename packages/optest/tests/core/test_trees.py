"""Nested outputs."""

import json
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

from optest.core import Tolerance, ToleranceTable, compare_trees

ONE, TWO = np.float32([1.0]), np.float32([2.0])
Pair = namedtuple("Pair", "first second")


def test_a_bare_array_is_a_tree() -> None:
    found = compare_trees(ONE, ONE)
    assert found.passed
    assert [path for path, _ in found.leaves] == [""]
    assert compare_trees(TWO, ONE).summary().startswith("output: mismatch: 1 of 1 float32 element (100 %)")


def test_every_leaf_is_compared_and_named() -> None:
    want = {"a": [ONE, (ONE, TWO)], "b": {"c": ONE}, 3: Pair(ONE, None)}
    found = compare_trees(want, want)
    assert found.passed
    assert [path for path, _ in found.leaves] == [
        "['a'][0]",
        "['a'][1][0]",
        "['a'][1][1]",
        "['b']['c']",
        "[3][0]",
    ]
    got = {"a": [ONE, (ONE, ONE)], "b": {"c": TWO}, 3: Pair(ONE, None)}
    found = compare_trees(got, want)
    assert [path for path, _ in found.failures] == ["['a'][1][1]", "['b']['c']"]
    assert found.summary().startswith("output['a'][1][1]: mismatch: ")
    assert found.summary().endswith("(and 1 more)")
    assert "output['b']['c']: mismatch" in found.describe()


def test_lists_and_tuples_and_orders_of_keys_are_alike() -> None:
    assert compare_trees([ONE, {"x": ONE, "y": TWO}], (ONE, {"y": TWO, "x": ONE})).passed


@pytest.mark.parametrize(
    ("got", "want", "difference"),
    [
        ([ONE], [ONE, ONE], "output[1]: missing"),
        ([ONE, ONE], [ONE], "output[1]: not expected"),
        ({"a": ONE}, {"b": ONE}, "output['b']: missing"),
        ({"a": ONE, "b": ONE}, {"b": ONE}, "output['a']: not expected"),
        ([ONE], ONE, "output: sequence, expected array"),
        (None, ONE, "output: NoneType, expected array"),
        (ONE, None, "output: array, expected NoneType"),
        ([{}], [[]], "output[0]: dict, expected sequence"),
        ([3], [4], "output[0]: 3, expected 4"),
        ([3], [3.0], "output[0]: int, expected array"),
        ([True], [1], "output[0]: bool, expected int"),
        (["x"], ["y"], "output[0]: 'x', expected 'y'"),
    ],
)
def test_trees_that_differ_fail(got: object, want: object, difference: str) -> None:
    found = compare_trees(got, want)
    assert not found.passed
    assert difference in found.differences
    assert difference.split(":")[0] in found.summary()


def test_what_both_have_is_compared_all_the_same() -> None:
    found = compare_trees([TWO, ONE], [ONE, ONE, ONE])
    assert found.differences == ("output[2]: missing",)
    assert [leaf.passed for _, leaf in found.leaves] == [False, True]


def test_numbers_are_leaves() -> None:
    assert compare_trees(
        [1.5, 2, np.float32(3), 1j, None, "x"], [1.5, 2, np.float32(3), 1j, None, "x"]
    ).passed
    assert not compare_trees([1.5], [1.6]).passed
    assert not compare_trees([float("nan")], [1.0]).passed
    assert not compare_trees([10**30], [10**30 + 1]).passed


def test_tolerance_may_depend_on_the_dtype() -> None:
    table = ToleranceTable(operators={"exp": {"float32": {"rtol": 2.0}}})
    want = [ONE, np.float64([1.0])]
    got = [TWO, np.float64([2.0])]
    found = compare_trees(got, want, partial(table.lookup, operator="exp"))
    assert [leaf.passed for _, leaf in found.leaves] == [True, False]
    assert compare_trees(got, want, Tolerance(2.0, 0.0)).passed


def test_reference_and_control_reach_their_leaves() -> None:
    truth = {"a": np.float64([1.0]), "b": None}
    control = {"a": np.float32([1.5]), "b": None}
    want = {"a": np.float32([1.5]), "b": ONE}
    found = compare_trees({"a": np.float32([1.25]), "b": ONE}, want, reference=truth, control=control)
    assert {path: leaf.passed_by for path, leaf in found.leaves} == {
        "['a']": "accuracy",
        "['b']": "tolerance",
    }
    assert found.summary() == "passed: 2 outputs, 1 by accuracy"
    assert compare_trees([ONE, 3], [ONE, 3], reference=[np.float64([1.0]), None], mode="accuracy").passed


def test_a_reference_of_another_shape_is_misuse() -> None:
    with pytest.raises(ValueError, match=r"the reference has no output\['a'\]\[1\], which expected has"):
        compare_trees({"a": [ONE, ONE]}, {"a": [ONE, ONE]}, reference={"a": [np.float64([1.0])]})
    with pytest.raises(ValueError, match=r"the control has no output\[0\]"):
        compare_trees([ONE], [ONE], control={})


def test_json() -> None:
    found = compare_trees({"a": np.float32([np.nan])}, {"a": ONE, "b": ONE})
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["passed"] is False
    assert data["differences"] == ["output['b']: missing"]
    assert data["leaves"][0]["path"] == "['a']"
    assert data["leaves"][0]["worst"]["actual"] == "nan"
