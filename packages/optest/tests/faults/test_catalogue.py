"""What each fault does to an output, compared with results worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optest.backends.stub import StubDriver
from optest.core.case import BackendTarget, TestCase
from optest.faults import find_fault
from optest.faults.catalogue import usual_value
from optest.operators import operator_registry


def spoiled(fault: str, op: str, *inputs: np.ndarray, **attributes: object) -> list:
    """The outputs of ``op`` with ``fault``, as nested lists."""
    descriptor = operator_registry.get(op)
    case = TestCase(
        descriptor,
        tuple(one.dtype.name for one in inputs),
        {name: one.shape for name, one in zip(descriptor.inputs, inputs, strict=True)},
        descriptor.complete_attributes(attributes),
        BackendTarget("faulty"),
        None,
        0,
    )
    found = find_fault(fault).spoil(StubDriver().run, case, inputs)
    assert [one.dtype.name for one in found] == list(case.output_dtypes)
    return [one.tolist() for one in found]


THREE = np.float32([1, 2, 3])
MATRIX = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize(
    ("fault", "op", "inputs", "attributes", "wanted"),
    [
        ("zeros", "square", [THREE], {}, [0, 0, 0]),
        ("copies-input", "square", [THREE], {}, [1, 2, 3]),
        ("copies-input", "sum", [THREE], {}, 1),
        ("wrong-sign", "square", [THREE], {}, [-1, -4, -9]),
        ("wrong-sign", "isnan", [THREE], {}, [False, False, False]),
        ("off-by-one", "square", [THREE], {}, [9, 1, 4]),
        ("off-by-one", "square", [MATRIX], {}, [[9, 1, 4], [36, 16, 25]]),
        ("off-by-one", "sum", [THREE], {}, 6),
        ("reversed-axis", "square", [THREE], {}, [9, 4, 1]),
        ("drops-last", "square", [MATRIX], {}, [[1, 4, 9], [16, 25, 0]]),
        ("truncates-reduction", "sum", [MATRIX], {"dim": 1}, [3, 9]),
        ("truncates-reduction", "amin", [np.float32([3, 2, 1])], {}, 2),
        ("truncates-reduction", "mm", [MATRIX, MATRIX.T], {}, [[5, 14], [14, 41]]),
        ("wrong-rounding", "neg", [np.float32([1 / 3, 0, np.inf])], {}, [-1365 / 4096, 0, -np.inf]),
        ("swaps-nan", "exp", [np.float32([np.nan, 0])], {}, [1, 1]),
        ("saturates", "add", [np.int8([100, 1]), np.int8([100, 1])], {}, [127, 2]),
        ("saturates", "neg", [np.uint8([1])], {}, [0]),
        ("saturates", "cast", [np.int32([300, -5])], {"dtype": "uint8"}, [255, 0]),
        ("saturates", "exp", [np.float32([0])], {}, [1]),
        ("ignores-attribute:alpha", "add", [THREE, THREE], {"alpha": 2}, [2, 4, 6]),
        ("ignores-attribute:dim", "cumsum", [MATRIX], {"dim": 0}, [[1, 3, 6], [4, 9, 15]]),
    ],
)
def test_what_it_does(fault: str, op: str, inputs: list, attributes: dict, wanted: object) -> None:
    assert spoiled(fault, op, *inputs, **attributes) == [wanted]


def test_inputs_are_left_alone() -> None:
    values = MATRIX.copy()
    for fault in ("truncates-reduction", "swaps-nan", "drops-last", "zeros"):
        spoiled(fault, "mm", values, MATRIX.T)
    assert np.array_equal(values, MATRIX)


def test_empty_and_scalar_results_stay() -> None:
    for fault in ("off-by-one", "reversed-axis", "drops-last", "copies-input"):
        assert spoiled(fault, "square", np.zeros((0, 3), np.float32)) == [[]]
    assert spoiled("truncates-reduction", "sum", np.float32(7)) == [7]


def test_an_impossible_usual_value_shows_nothing() -> None:
    """The usual value, dim 0, does not fit these indices, so the fault returns the right answer."""
    values = np.arange(8, dtype=np.float32).reshape(2, 4)
    index = np.int64([[3], [2]])
    assert spoiled("ignores-attribute:dim", "gather", values, index, dim=1) == [[[3], [6]]]


def test_the_usual_value_is_the_default_or_the_first_setup_s() -> None:
    assert usual_value(operator_registry.get("add"), "alpha") == 1
    cumsum = operator_registry.get("cumsum")
    assert usual_value(cumsum, "dim") == cumsum.setups[0].attributes["dim"]
    moved = replace(cumsum, setups=cumsum.setups[1:])
    assert usual_value(moved, "dim") == cumsum.setups[1].attributes["dim"]
