"""The campaign ``scripts``: programs hard-coded for CUDA that check their own results, run redirected.

Each file of ``scripts/`` asserts that its own results are right, which needs no CUDA device. Its first
line, ``# run: OPTIONS``, has the options of ``torchstone redirect run``. Scripts that start processes
(``-m``, or ``# run in a process: OPTIONS``) run in their own interpreter. The others run one after the other
in the campaign's interpreter, so that each script sees what the one before leaves behind.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import shlex
import subprocess
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import torch

from torchstone.redirect.launch import Program, run
from torchstone.redirect.options import Options

SCRIPTS = Path(__file__).parent / "scripts"
_HEAD = re.compile(r"# run( in a process)?:(.*)\n")
_LIMIT_S = 170.0
_ABORT_AT_EXIT = "terminate called without an active exception"
"""PyTorch's message when it aborts because Gloo's threads outlive the interpreter. This happens now and then
if a script shards tensors over two processes on the CPU, also without Torchstone (pytorch/pytorch#65231)."""
_RUNS = 3
"""How often a script runs at most if it ends with that message."""
_SHOWN = 6000
"""How many characters of a failed script's output are kept."""


@dataclass(frozen=True)
class Script:
    """A file of ``scripts/``, and how to run it."""

    path: Path
    options: tuple[str, ...] = field(default=())
    own_process: bool = False

    @classmethod
    def read(cls, path: Path) -> Script:
        head = _HEAD.match(path.read_text("utf-8"))
        if head is None:
            raise ValueError(f"{path}: the first line is not '# run: OPTIONS'")
        options = tuple(shlex.split(head[2]))
        return cls(path, options, bool(head[1]) or "-m" in options)

    @property
    def what(self) -> str:
        return self.path.stem

    @property
    def devices(self) -> int:
        options = self.options
        return int(options[options.index("--devices") + 1]) if "--devices" in options else 1


def scripts(folder: Path = SCRIPTS) -> list[Script]:
    """Return all scripts, those that need no process first. The order is the same everywhere."""
    found = [Script.read(path) for path in sorted(folder.glob("*.py"))]
    random.Random(0).shuffle(found)
    return sorted(found, key=lambda one: one.own_process)


class Tries:
    """Runs scripts by their number. After the last script, the numbers begin again with the first."""

    def __init__(self, found: list[Script], work: Path) -> None:
        self.scripts, self._work = found, work

    def make(self, number: int) -> Script:
        return self.scripts[number % len(self.scripts)]

    def attempt(self, made: Script) -> tuple[str, str]:
        """Run a script. Return how it ended, and the defect in that, if any."""
        if made.own_process:
            return _in_a_process(made)
        with contextlib.chdir(self._work):
            return _here(made)


def prepare(seed: int, folder: Path) -> Tries:
    torch.set_num_threads(1)
    return Tries(scripts(), folder)


def _here(script: Script) -> tuple[str, str]:
    said = io.StringIO()
    torch.manual_seed(0)
    options = Options(target="cpu", devices=script.devices)
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = run(Program(str(script.path)), (), options)
    if code == 0 and torch.cuda.is_available() is not _CUDA_IS_HERE:
        return "leaves a scope", "CUDA is still redirected afterwards"
    return _verdict(code, said.getvalue())


_CUDA_IS_HERE = torch.cuda.is_available()


def _in_a_process(script: Script) -> tuple[str, str]:
    command = [sys.executable, "-W", "ignore", "-m", "torchstone.redirect", "--target", "cpu"]
    for _ in range(_RUNS):
        done = subprocess.run(
            [*command, *script.options, str(script.path)],
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if not done.returncode or _ABORT_AT_EXIT not in done.stdout:
            break
    return _verdict(done.returncode, done.stdout)


def _verdict(code: int, said: str) -> tuple[str, str]:
    return ("ends well", "") if code == 0 else (f"exit code {code}", said[-_SHOWN:] or "no message")
