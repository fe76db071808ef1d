"""References and drivers that write into the inputs of a case are found and named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from optest.backends import BackendDriver
from optest.backends.command import CommandDriver
from optest.core.case import BackendTarget, TestCase
from optest.core.result import CaseResult, Status
from optest.dotted import load_object
from optest.generators.base import load_generator
from optest.operators import operator_registry
from optest.running.execution import run_case

Array = np.ndarray[Any, Any]


class Running(BackendDriver):
    """A driver that applies a function to the inputs."""

    kind = name = "running"
    isolated = False
    phases = ("forward", "inplace")

    def __init__(self, function: Any) -> None:
        self._function = function

    def run(self, case: TestCase, inputs: Sequence[Array]) -> Any:
        return self._function(*inputs)


def case_of(op: str = "relu", **fields: Any) -> TestCase:
    one = operator_registry.get(op)
    shapes = dict.fromkeys(one.inputs, (3, 4))
    dtypes = ("float32",) * len(one.inputs)
    return TestCase(one, dtypes, shapes, one.complete_attributes({}), BackendTarget("x"), None, 0, **fields)


def outcome(function: Any, op: str = "relu", **fields: Any) -> CaseResult:
    return run_case(Running(function), case_of(op, **fields))


def clamping_reference(inputs: Sequence[Array], attributes: Any) -> tuple[Array]:
    (x,) = inputs
    x[x < 0] = 0
    return (x.astype(np.float64),)


def clamping_torch_reference(inputs: Sequence[Array], attributes: Any) -> tuple[Array]:
    """Write through PyTorch, which NumPy's read-only flag does not stop."""
    torch = pytest.importorskip("torch")
    return (torch.from_numpy(inputs[0]).relu_().numpy().astype(np.float64),)


def aliasing_reference(inputs: Sequence[Array], attributes: Any) -> tuple[Array]:
    return (inputs[0],)


def by_name(monkeypatch: pytest.MonkeyPatch, function: Any) -> str:
    """Return a dotted path that imports ``function``; names in a test file cannot be imported."""
    import sys
    import types

    module = types.ModuleType("references_of_a_test")
    module.function = function  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    load_object.cache_clear()
    load_generator.cache_clear()
    return f"{module.__name__}:function"


@pytest.mark.parametrize("reference", [clamping_reference, clamping_torch_reference])
def test_a_reference_that_writes_is_named(monkeypatch: pytest.MonkeyPatch, reference: Any) -> None:
    """Otherwise, a kernel that only copies its input would pass as relu."""
    path = by_name(monkeypatch, reference)
    found = outcome(lambda x: (x.copy(),), reference=path)
    assert found.status is Status.ERROR
    assert found.reason == f"the reference {path} wrote into input0, which it must only read"


def test_a_reference_may_return_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    path = by_name(monkeypatch, aliasing_reference)
    assert outcome(lambda x: (x.copy(),), reference=path).status is Status.PASSED
    assert outcome(lambda x: (x + 1,), reference=path).status is Status.MISMATCH


def writing(x: Array) -> tuple[Array]:
    answer = np.maximum(x, 0)
    x[...] = 17
    return (answer,)


def test_a_driver_that_writes_is_named() -> None:
    found = outcome(writing)
    assert found.status is Status.ERROR
    assert found.reason == "the driver running wrote into input0, which it must only read"


def test_the_phase_inplace_lets_the_first_input_be_written() -> None:
    def add(self: Array, other: Array) -> tuple[Array]:
        self += other
        return (self,)

    def add_to_other(self: Array, other: Array) -> tuple[Array]:
        other += self
        return (other,)

    assert outcome(add, "add", phase="inplace").status is Status.PASSED
    assert outcome(add, "add").status is Status.ERROR
    found = outcome(add_to_other, "add", phase="inplace")
    assert found.reason == "the driver running wrote into input1, which it must only read"


def test_a_written_nan_or_signed_zero_is_seen() -> None:
    """Bits are compared, not values: NaN is unequal to itself and 0.0 equal to -0.0."""

    def negate_zeros(x: Array) -> tuple[Array]:
        answer = np.maximum(x, 0)
        x[x == 0] *= -1
        return (answer,)

    inputs = (np.zeros((3, 4), np.float32),)
    found = run_case(Running(negate_zeros), case_of(), inputs)
    assert "wrote into input0" in found.reason
    clean = run_case(
        Running(lambda x: (np.maximum(x, 0),)), case_of(), (np.full((3, 4), np.nan, np.float32),)
    )
    assert clean.status is Status.PASSED


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (lambda x: (x, x), "gave 2 inputs; the case has 1"),
        (lambda x: (x.astype(np.float64),), r"gave float64 [3, 4] for input0; the case has float32 [3, 4]"),
        (lambda x: (x[1:],), r"gave float32 [2, 4] for input0; the case has float32 [3, 4]"),
    ],
)
def test_a_generator_gives_what_the_case_is_about(
    monkeypatch: pytest.MonkeyPatch, given: Any, reason: str
) -> None:
    class Generator:
        def generate(self, case: TestCase, rng: Any) -> Any:
            return given(np.ones((3, 4), np.float32)), None

    found = outcome(lambda x: (np.maximum(x, 0),), generator=by_name(monkeypatch, Generator()))
    assert found.status is Status.ERROR
    assert reason in found.reason


EDITS = (
    "import os, shutil, sys; os.makedirs('output', exist_ok=True); "
    "shutil.copy('input/input0.bin', 'output/output0.bin'); {}"
)


@pytest.mark.parametrize(
    "edit", ["open('input/input0.bin', 'r+b').write(b'x')", "os.remove('input/input0.bin')"]
)
def test_a_command_that_edits_its_input_file(edit: str) -> None:
    import sys

    command = {"command": [sys.executable, "-c", EDITS.format(edit)]}
    one = operator_registry.get("roll")
    attributes = one.complete_attributes({"shifts": 0})
    case = TestCase(
        one, ("float32",), {"input0": (2, 3)}, attributes, BackendTarget("command"), None, 0,
        backend_config={"command": command},
    )  # fmt: skip
    found = run_case(CommandDriver(), case)
    assert found.status is Status.ERROR
    assert found.reason == (
        "the command wrote into input/input0.bin, the file of input0: it must only read it"
    )
