"""``--journal``: a stopped run resumes, and a run of changed code starts over."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os
def test_one(): pass
def test_two(): assert os.environ["GOOD"] == "1"
"""


@pytest.fixture
def project(tmp_path: Path, repo: Path) -> Path:
    (tmp_path / "conftest.py").write_text((repo / "conftest.py").read_text())
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {repo / 'tests/helpers'}\n")
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "code.py").write_text("x = 1\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path


def run(project: Path, good: bool, *options: str) -> tuple[int, str]:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--journal",
        "journal",
        *options,
    ]
    environment = {**os.environ, "GOOD": str(int(good))}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    "options", [(), pytest.param(("-n", "2"), marks=pytest.mark.conformance)], ids=["one process", "workers"]
)
def test_only_what_has_not_passed_runs_again(project: Path, options: tuple[str, ...]) -> None:
    code, text = run(project, False, *options)
    assert (code, "1 failed, 1 passed" in text) == (1, True)
    code, text = run(project, True, *options)
    assert (code, "1 passed" in text) == (0, True)
    code, text = run(project, True, *options)
    assert (code, "passed" in text) == (0, False)
    (project / "packages" / "code.py").write_text("x = 2\n")
    assert "2 passed" in run(project, True, *options)[1]
