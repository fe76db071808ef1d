"""The numpy driver: what it computes and what it declines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from optest.backends.driver import Unsupported
from optest.backends.numpy_driver import NumpyDriver
from optest.core.case import BackendTarget, TestCase
from optest.operators import operator_registry


def case(name: str = "relu", phase: str = "forward") -> TestCase:
    descriptor = operator_registry.get(name)
    return TestCase(descriptor, ("bfloat16",), {"input0": (2, 2)}, {}, BackendTarget("numpy"), None, 0, phase)


def test_it_computes_in_the_dtype_of_the_case() -> None:
    one = case()
    inputs = (np.array([[-1.5, 2.0], [0.0, -3.0]]).astype("bfloat16"),)
    (found,) = NumpyDriver().run(one, inputs)
    assert found.dtype.name == "bfloat16"
    assert found.astype(float).tolist() == [[0.0, 2.0], [0.0, 0.0]]


def test_it_declines_other_phases_and_operators() -> None:
    driver = NumpyDriver()
    assert driver.supports(case()) is None
    assert "forward phase only, not backward" in (driver.supports(case(phase="backward")) or "")
    stranger = replace(case(), descriptor=replace(operator_registry.get("relu"), name="my_relu"))
    with pytest.raises(Unsupported, match="built-in operators only, not my_relu"):
        driver.run(stranger, (np.zeros((2, 2)),))
