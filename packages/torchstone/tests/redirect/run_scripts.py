"""Runs scripts of ``scripts/`` in one process: each one redirected, and then its twin on the CPU.

``python run_scripts.py TARGET FOLDER NAME…`` leaves ``FOLDER/NAME/redirected/result.pt`` and
``FOLDER/NAME/twin/result.pt``, and a line of JSON on stdout that says how each script ended. A process can
have one PrivateUse1 device, so each target has a process of its own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from redirect import device
from torchstone.redirect.launch import Program, run
from torchstone.redirect.options import Options

SCRIPTS = Path(__file__).parent / "scripts"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _run(name: str, target: str, folder: Path) -> dict[str, object]:
    device.KERNELS.clear()
    torch.manual_seed(12345)
    said = io.StringIO()
    with _inside(folder / "redirected"), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(Program(str(SCRIPTS / f"{name}.py")), (), Options(target=target))
    kernels = device.KERNELS.total()
    with _inside(folder / "twin"):
        runpy.run_path(str(SCRIPTS / "twins" / f"{name}.py"), run_name="__main__")
    return {"code": code, "kernels": kernels, "said": said.getvalue()}


def main(target: str, folder: str, *names: str) -> None:
    if target == device.NAME:
        device.register()
    print(json.dumps({name: _run(name, target, Path(folder) / name) for name in names}))


if __name__ == "__main__":
    main(*sys.argv[1:])
