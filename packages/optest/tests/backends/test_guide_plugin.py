"""``MyCudaBackend``, copied from the architecture guide and loaded through ``OPTEST_PLUGINS``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

GUIDE = """\
from optest.backends import BackendDriver, backend_manager

class MyCudaBackend(BackendDriver):
    kind = "gpu"
    name = "cuda-runtime"
    chips = ("a100", "h100")

    def run(self, case, inputs):
        # 1. Convert numpy inputs to device tensors
        # 2. Launch your CUDA kernel identified by case.descriptor.name
        # 3. Copy outputs back to numpy arrays and return a tuple/list
        return (run_my_kernel(case, inputs),)

backend_manager.register(MyCudaBackend())
"""

KERNEL = """
import numpy as np

def run_my_kernel(case, inputs):
    assert case.backend.chip == "a100"
    assert case.descriptor.name == "relu"
    return np.maximum(inputs[0], 0)
"""


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``optest WORDS`` with the plugin in ``folder``."""
    package = folder / "my_company" / "optest_plugins"
    package.mkdir(parents=True)
    (package / "backends.py").write_text(GUIDE + KERNEL)
    environment = {
        **os.environ,
        "OPTEST_PLUGINS": "my_company.optest_plugins.backends",
        "OPTEST_HOME": str(folder / "home"),
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
    }
    return subprocess.run(
        [sys.executable, "-c", "from optest.cli import main; main()", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


CASE = ("--op", "relu", "--dtype", "float16", "--shape", "8,2048", "--ledger", "none")


def test_the_guide_s_backend_runs_by_kind_and_chip(tmp_path: Path) -> None:
    done = run(tmp_path, "run", *CASE, "--backend", "gpu", "--chip", "a100", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["summary"]["counts"]["passed"] == 1


def test_a_chip_that_it_does_not_have(tmp_path: Path) -> None:
    done = run(tmp_path, "run", *CASE, "--backend", "gpu", "--chip", "mi300")
    assert done.returncode == 2
    assert (
        "no driver of kind 'gpu' knows the chip 'mi300'; there are cuda-runtime (a100 or h100)" in done.stderr
    )


def test_it_is_listed(tmp_path: Path) -> None:
    listed = json.loads(run(tmp_path, "backends", "--json").stdout)
    assert {"kind": "gpu", "name": "cuda-runtime", "chips": ["a100", "h100"]} in listed["backends"]
