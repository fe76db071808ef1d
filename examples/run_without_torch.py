"""Run an artifact in a process that has jaxlib and no torch.

``python run_without_torch.py [FILE.stone]``; without a file, another process
exports one first (export_and_run.py). Here, importing torch is an error, so that
nothing can use it unnoticed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy


class NoTorch(MetaPathFinder):
    """An import hook that refuses torch."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "torch":
            raise ImportError(f"{name} is blocked: this process runs without torch")


def main(artifact: Path) -> None:
    sys.meta_path.insert(0, NoTorch())
    import torchstone

    program = torchstone.load(artifact)
    x = numpy.random.default_rng(0).standard_normal((5, 16), dtype=numpy.float32)
    logits = program(x)
    print(f"output: {type(logits).__module__}.{type(logits).__name__} {logits.dtype}{list(logits.shape)}")
    print(f"classes: {logits.argmax(1).tolist()}")
    print(f"torch imported: {'torch' in sys.modules}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "model.stone")
            subprocess.run([sys.executable, Path(__file__).with_name("export_and_run.py"), file], check=True)
            main(file)
