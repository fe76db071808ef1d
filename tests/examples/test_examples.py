"""Every script in ``examples/`` runs, and prints what is expected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchstone.parity import mnist

EXAMPLES = {
    "compile_backend_demo.py": ["forward: compiled aten.", "backward: compiled aten.", "fallbacks: 0\n"],
    "export_and_run.py": ["batch of 1: largest difference", "batch of 100: largest difference"],
    "mnist.py": [
        "data: scikit-learn's 1,797 digits",
        "operators that fell back to eager: 0\n",
        "test accuracy: 9",
    ],
    "run_cuda_code.py": ["redirected: True is_available: True", "the loss fell: True"],
    "run_without_torch.py": ["output: numpy.ndarray float32[5, 4]", "torch imported: False"],
    "train_over_processes.py": ["processes: 1", "loss: 0.7111 to 0.1"],
    "train_digits.py": [
        "test accuracy, artifact in a fresh process: 9",
        "operators that fell back to eager: 0",
        "graph breaks: 0\n",
    ],
}


@pytest.fixture(scope="module")
def examples(repo: Path) -> Path:
    return repo / "examples"


def test_every_example_is_run_here(examples: Path) -> None:
    assert {path.name for path in examples.glob("*.py")} == set(EXAMPLES)


@pytest.mark.conformance
def test_two_processes_train_as_one(examples: Path, tmp_path: Path) -> None:
    script = str(examples / "train_over_processes.py")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--master-port", "29617"]
    one, two = (
        subprocess.run([*start, script], cwd=tmp_path, capture_output=True, text=True, timeout=400)
        for start in ([sys.executable], [*torchrun, "--nproc-per-node", "2"])
    )
    assert two.returncode == 0, two.stdout + two.stderr
    assert "processes: 2\n" in two.stdout
    assert two.stdout.split("processes: 2\n")[1] == one.stdout.split("processes: 1\n")[1]


@pytest.mark.kept("compile_backend_demo.py", "run_without_torch.py")
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name: str, examples: Path, tmp_path: Path) -> None:
    if name in ("mnist.py", "train_digits.py"):
        pytest.importorskip("sklearn", reason="the extra torchstone[demo] is not installed")
    allowed = dict.fromkeys(mnist.ALLOWED_BY, "")
    done = subprocess.run(
        [sys.executable, examples / name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, **allowed},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for promised in EXAMPLES[name]:
        assert promised in done.stdout
    assert list(tmp_path.iterdir()) == []
