"""The Ascend driver with the plans of the architecture guide; a CPU script stands in for the chip."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from optest.backends import AscendBackendDriver, backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.core.result import Status
from optest.plan.loader import load
from optest.plan.options import resolve
from optest.running.execution import run_case

ARTIFACTS = Path(__file__).parents[1] / "artifacts"
TARGET = BackendTarget("npu", "ascend", "ascend310b")

GUIDE = """\
cases:
  - op: relu
    shapes:
      input0: [8, 2048]
      output0: [8, 2048]
    backend_config:
      ascend:
        workdir: /path/to/add_custom
        command: ["bash", "run.sh", "-r", "cpu", "-v", "Ascend910B"]
        inputs:
          - tensor: input0
            path: input/input_x.bin
            dtype: float16
        outputs:
          - tensor: output0
            path: output/output_z.bin
            dtype: float16
"""
"""The plan as the architecture guide prints it."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An operator project: a folder with the scripts of the artifacts."""
    for name in ("ascend_backend", "add_custom"):
        shutil.copytree(ARTIFACTS / name, tmp_path, dirs_exist_ok=True)
    monkeypatch.setenv("PYTHON", sys.executable)
    return tmp_path


def cases(plan: Path) -> list[TestCase]:
    return list(load(resolve(plan=plan), TARGET))


def test_the_plan_of_the_guide_passes_with_only_its_path_replaced(project: Path) -> None:
    plan = project / "my_plan.yaml"
    plan.write_text(GUIDE.replace("/path/to/add_custom", str(project)))
    [case] = cases(plan)
    assert (case.dtypes, case.output_shapes) == (("float16",), {"output0": (8, 2048)})
    result = run_case(AscendBackendDriver(), case)
    assert result.status is Status.PASSED, result.reason
    assert (project / "input/input_x.bin").stat().st_size == 8 * 2048 * 2
    assert (project / "output/output_z.bin").stat().st_size == 8 * 2048 * 2


def test_the_shipped_plan_is_that_of_the_guide(project: Path) -> None:
    shipped = (project / "optest_plan.yaml").read_text()
    assert re.sub(r"workdir: .*", "workdir: .", GUIDE) == shipped
    [case] = cases(project / "optest_plan.yaml")
    assert run_case(AscendBackendDriver(), case).status is Status.PASSED


def test_a_failing_launch_surfaces_stderr_and_exit_code(project: Path) -> None:
    [case] = cases(project / "optest_plan_failure.yaml")
    result = run_case(AscendBackendDriver(), case)
    assert (result.status, result.exit_code) == (Status.ERROR, 42)
    assert "bash simulate_failure.sh exited with 42" in result.reason
    assert result.stderr_tail == "aclrtLaunchKernel failed: error 507015"


def test_a_wrong_kernel_is_a_mismatch(project: Path) -> None:
    """A wrong kernel fails, so the pass above is not accidental."""
    script = project / "produce.py"
    script.write_text(script.read_text().replace("np.maximum", "np.minimum"))
    [case] = cases(project / "optest_plan.yaml")
    assert run_case(AscendBackendDriver(), case).status is Status.MISMATCH


def test_it_is_the_npu_driver() -> None:
    assert isinstance(backend_manager.select("npu", "ascend310b"), AscendBackendDriver)
    assert isinstance(backend_manager.select("npu", "Ascend910B"), AscendBackendDriver)


def optest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command in the project's folder."""
    environment = {
        **os.environ,
        "OPTEST_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", "from optest.cli import main; main()", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_guide_s_command_line(project: Path) -> None:
    """``--backend npu --chip ascend310b`` with the plan, and a report in JSON."""
    words = ("--plan", "optest_plan.yaml", "--backend", "npu", "--chip", "ascend310b")
    done = optest(project, "run", *words, "--report", "json:report.json")
    assert done.returncode == 0, done.stderr
    [case] = json.loads((project / "report.json").read_text())["cases"]
    assert (case["status"], case["backend"]["name"], case["backend"]["chip"]) == (
        "passed",
        "ascend",
        "ascend310b",
    )


def test_the_failure_plan_reports_42(project: Path) -> None:
    done = optest(project, "run", "--plan", "optest_plan_failure.yaml", "--report", "json:report.json")
    assert done.returncode == 1
    assert "exited with 42" in done.stdout
    assert "aclrtLaunchKernel failed: error 507015" in done.stdout
    [case] = json.loads((project / "report.json").read_text())["cases"]
    assert (case["status"], case["exit_code"]) == ("error", 42)


def test_the_runner_s_timeout_ends_the_command_too(project: Path) -> None:
    """The timeout also ends processes that the command started, even if the plan has no timeout."""
    plan = (project / "optest_plan.yaml").read_text()
    (project / "hang.sh").write_text("sleep 600 & echo $! $$ > pids\nsleep 600\n")
    (project / "hang.yaml").write_text(re.sub(r"command: .*", 'command: ["bash", "hang.sh"]', plan))
    done = optest(project, "run", "--plan", "hang.yaml", "--backend", "ascend", "--timeout", "2")
    assert done.returncode == 1
    assert "TIMED_OUT" in done.stdout
    stat = [Path("/proc", pid, "stat") for pid in (project / "pids").read_text().split()]
    assert [path for path in stat if path.exists() and path.read_text().split()[2] not in "ZX"] == []
