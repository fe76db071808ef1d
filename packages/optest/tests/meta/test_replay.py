"""Shrinking real failures, and the scripts that show them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from optest.backends import BackendDriver
from optest.core.case import BackendTarget, TestCase
from optest.core.result import Status
from optest.errors import ReportError, UsageError
from optest.operators import operator_registry
from optest.running.replay import script, write_script
from optest.running.shrink import shrink

Make = Callable[..., TestCase]
Run = Callable[[Path], subprocess.CompletedProcess[str]]


@pytest.fixture
def broken() -> BackendDriver:
    import misbehaving

    return misbehaving.Broken()


def matmul(rows: int, inner: int, columns: int) -> TestCase:
    shapes = {"input0": (rows, inner), "input1": (inner, columns)}
    descriptor = operator_registry.get("matmul")
    return TestCase(
        descriptor,
        ("float32", "float32"),
        shapes,
        descriptor.complete_attributes({}),
        BackendTarget("cpu", "broken"),
        None,
        0,
    )


def test_a_wrong_result_shrinks_to_one_element(broken: BackendDriver, make_case: Make) -> None:
    """The driver is wrong for values above 1; one such element is left, and it is a whole number."""
    found = shrink(make_case(37, "broken"), broken)
    assert found.case.shapes["input0"] in ((), (1,))
    assert found.result.status is Status.MISMATCH
    (values,) = found.inputs
    assert float(values.reshape(-1)[0]) == np.rint(values.reshape(-1)[0]) > 1


def test_shapes_that_belong_together_shrink_together(broken: BackendDriver) -> None:
    """The driver drops the last product if the inner dimension has at least three elements."""
    found = shrink(matmul(5, 9, 4), broken)
    assert found.case.shapes == {"input0": (1, 3), "input1": (3, 1)} or found.case.shapes == {
        "input0": (3,),
        "input1": (3,),
    }
    left, right = (one.reshape(-1) for one in found.inputs)
    assert list(left[:2]) == [0, 0] or list(right[:2]) == [0, 0]
    assert left[2] * right[2] != 0


def test_a_crash_shrinks_too(driver: BackendDriver, make_case: Make) -> None:
    found = shrink(make_case(103), driver)
    assert (found.result.status, found.result.signal) == (Status.CRASHED, "SIGSEGV")
    assert found.case.shapes == {"input0": (103,)}
    assert not any(found.inputs[0])
    assert "Crashes this process while it fails" in script(found, make_case(103), driver)


def test_the_script_fails_as_the_case_does(
    broken: BackendDriver, make_case: Make, tmp_path: Path, run_script: Run
) -> None:
    file = tmp_path / "new" / "out.py"
    shrunk = write_script(make_case(37, "broken"), broken, file)
    text = file.read_text()
    assert "np.array([" in text
    assert f"Shrunk by optest 0.1.0 from relu float32 [37] ({make_case(37, 'broken').id})." in text
    done = run_script(file)
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("mismatch\n")
    assert str(list(shrunk.shapes["input0"])) in done.stdout
    file.write_text(text.replace("select('broken'", "select('numpy'"))
    assert run_script(file).returncode == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int32", "bool"])
def test_scripts_give_every_dtype_back(
    broken: BackendDriver, tmp_path: Path, dtype: str, run_script: Run
) -> None:
    """The driver inverts ``eq`` for every dtype."""
    descriptor = operator_registry.get("eq")
    shapes: Any = {"input0": (6,), "input1": (6,)}
    target = BackendTarget("cpu", "broken")
    case = TestCase(descriptor, (dtype, dtype), shapes, descriptor.complete_attributes({}), target, None, 0)
    write_script(case, broken, tmp_path / "out.py")
    done = run_script(tmp_path / "out.py")
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "mismatch"), done.stderr


def test_what_does_not_fail_is_not_shrunk(broken: BackendDriver, make_case: Make, tmp_path: Path) -> None:
    case = TestCase(
        operator_registry.get("abs"), ("float32",), {"input0": (3,)}, {}, BackendTarget("cpu"), None, 0
    )
    with pytest.raises(UsageError, match=r"does not fail on broken \(passed\)"):
        shrink(case, broken)
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot be written"):
        write_script(make_case(37, "broken"), broken, tmp_path / "file" / "out.py")


def test_the_command(optest: Any, tmp_path: Path, run_script: Run) -> None:
    optest("run", "--plan", optest.plan(101), "--json")
    done = optest("replay", "--plan", str(tmp_path / "plan.yaml"), "--script", "out.py", case_id(optest))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out.py: relu float32 [101]\n"
    assert run_script(tmp_path / "out.py").returncode == 1


def case_id(optest: Any) -> str:
    found = optest("plan", "check", str(optest.folder / "plan.yaml"), "--ids", "--json")
    (only,) = json.loads(found.stdout)["ids"]
    return str(only)
