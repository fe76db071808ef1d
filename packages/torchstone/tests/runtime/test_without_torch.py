"""The runtime and the artifact in a process that cannot import torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ImportError("torch is blocked")

sys.meta_path.insert(0, NoTorch())

import numpy
from torchstone import runtime
from torchstone.artifact import Artifact, load_artifact, save_artifact
from torchstone.errors import InputMismatch
from torchstone.signature import Signature

text = '''func.func @main(%x: tensor<4xbf16>, %y: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = chlo.broadcast_add %x, %y : (tensor<4xbf16>, tensor<4xbf16>) -> tensor<4xbf16>
  return %0 : tensor<4xbf16>
}'''
import ml_dtypes
x = numpy.arange(4).astype(ml_dtypes.bfloat16)
for name in ("pjrt", "reference"):
    program = runtime.get_engine(name).compile(text)
    (result,) = program(x, runtime.import_array(runtime.get_engine(name), x))
    print(name, result.to_numpy().astype(int).tolist())
    try:
        program(x, [1, 2, 3, 4])
    except InputMismatch as error:
        print(error.message)

tree = {"tuple": [{"tuple": []}, {"dict": {"keys": [], "values": []}}]}
save_artifact(sys.argv[1], Artifact(b"ML", Signature((), (), tree, tree), {"w": x}))
print(load_artifact(sys.argv[1]).weights["w"].astype(int).tolist())
print("torch" in sys.modules)
"""


def test_process_without_torch(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", SCRIPT, str(tmp_path / "empty.stone")],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout.splitlines() == [
        "pjrt [0, 2, 4, 6]",
        "list is not an array",
        "reference [0, 2, 4, 6]",
        "list is not an array",
        "[0, 1, 2, 3]",
        "False",
    ], done.stderr
    assert done.stderr == ""


def test_importing_the_runtime_does_not_import_torch() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    code = "import sys, torchstone.runtime, torchstone.artifact; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr
