from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from optest.backends import BackendDriver, backend_manager
from optest.core.case import BackendTarget, TestCase
from optest.operators import operator_registry

PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture(autouse=True)
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the plugin importable, here and in workers, and return the file that its driver writes to."""
    file = tmp_path / "notes"
    file.touch()
    monkeypatch.syspath_prepend(str(PLUGINS))
    monkeypatch.setenv("MISBEHAVING_NOTES", str(file))
    monkeypatch.setenv("OPTEST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("OPTEST_PLUGINS", "misbehaving")
    import misbehaving

    for name in {one.name for one in backend_manager.drivers()} & {"misbehaving", "broken"}:
        backend_manager.unregister(name)  # other tests in this process count drivers
    assert misbehaving.__file__.startswith(str(PLUGINS))
    return file


@pytest.fixture
def driver(notes: Path) -> BackendDriver:
    import misbehaving

    return misbehaving.Misbehaving()


def relu(size: int, driver: str = "misbehaving", **fields: Any) -> TestCase:
    """Return a case of relu; its first size tells the driver how to misbehave."""
    target = BackendTarget("cpu", driver)
    return TestCase(
        operator_registry.get("relu"), ("float32",), {"input0": (size,)}, {}, target, None, 0, **fields
    )


@pytest.fixture
def make_case() -> Callable[..., TestCase]:
    return relu


class Optest:
    """Runs the command in a separate process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(one for one in sys.path if one)}
        return subprocess.Popen(
            [sys.executable, "-m", "optest", *words],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        with self.start(*words) as process:
            out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def plan(self, *sizes: int) -> str:
        file = self.folder / "plan.yaml"
        shapes = json.dumps([[size] for size in sizes])
        file.write_text(
            f"backend: misbehaving\ncases:\n  - {{op: relu, dtypes: float32, shapes: {shapes}}}\n"
        )
        return str(file)


@pytest.fixture
def optest(tmp_path: Path) -> Optest:
    return Optest(tmp_path)


def _run_script(file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join(one for one in sys.path if one)},
    )


@pytest.fixture
def run_script() -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Return a function that runs a script in a process with this one's import path."""
    return _run_script


def processes_with(marker: str) -> list[int]:
    """Return the ids of living processes whose environment contains ``marker``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and marker.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.fixture
def children(notes: Path) -> Callable[[], list[int]]:
    """Return a function that lists processes left by this test, which know its file of notes."""

    def find() -> list[int]:
        return [one for one in processes_with(f"MISBEHAVING_NOTES={notes}") if one != os.getpid()]

    return find
