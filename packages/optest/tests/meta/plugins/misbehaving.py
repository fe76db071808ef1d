"""A driver and executor tasks that fail as broken kernels do; a case's first size selects the failure.

It is a plugin, so that worker processes import it by name.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from optest.backends import BackendDriver, backend_manager
from optest.core.case import TestCase

WRONG, RAISES, SEGFAULT, ABORT, HANG, LOCKED_HANG, NO_MEMORY, LEAVES, EXITS, FLAKY, SLOW, KILLED = range(
    101, 113
)
FORM = 120
"""The size for which the driver returns something that is not a tuple of arrays."""


def segfault() -> None:
    print("about to fault", file=sys.stderr)
    ctypes.string_at(8)


def note_and_exit(note: Path) -> None:
    with note.open("a") as file:
        file.write("once\n")
    os._exit(9)


def hang() -> None:
    while True:
        time.sleep(1)


def locked_hang() -> None:
    """Hang in C with the GIL held, so that no Python code of the process runs any more."""
    ctypes.PyDLL(None).sleep(1000)


def no_memory() -> np.ndarray[Any, Any]:
    """Allocate more memory than the limit of this process allows."""
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        return np.ones(4 << 30, np.uint8)
    finally:
        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def leave_children() -> None:
    """Start a child in this process group and one in its own session, then hang."""
    for own_session in (False, True):
        child = subprocess.Popen(["sleep", "1000"], start_new_session=own_session)
        note(f"child {child.pid}")
    hang()


def note(line: str) -> None:
    """Append to the file that a test reads afterwards."""
    with Path(os.environ["MISBEHAVING_NOTES"]).open("a") as file:
        file.write(line + "\n")


def add(a: int, b: int) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


class Misbehaving(BackendDriver):
    """Computes relu, unless the first size of the input asks for something else."""

    kind = "cpu"
    name = "misbehaving"

    def setup(self) -> None:
        note(f"setup {os.getpid()}")
        told = Path(os.environ["MISBEHAVING_NOTES"]).read_text()
        match os.environ.get("MISBEHAVING_SETUP"):
            case "raises":
                raise RuntimeError("no device")
            case "raises later" if told.count("setup") > 1:
                raise RuntimeError("the device is lost")
            case "crashes":
                segfault()

    def reset(self) -> None:
        note(f"reset {os.getpid()}")

    def teardown(self) -> None:
        note(f"teardown {os.getpid()}")

    def run(self, case: TestCase, inputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        (x,) = inputs
        note(f"run {case.shapes['input0'][0]} {os.getpid()}")
        match case.shapes["input0"][0]:
            case 101:
                return (np.where(np.arange(x.size) == 7, x.dtype.type(3), np.maximum(x, 0)),)
            case 102:
                print("what the kernel said", file=sys.stderr)
                raise RuntimeError("launch failed")
            case 103:
                segfault()
            case 104:
                os.abort()
            case 105:
                hang()
            case 106:
                locked_hang()
            case 107:
                no_memory()
            case 108:
                leave_children()
            case 109:
                os._exit(9)
            case 110:
                if Path(os.environ["MISBEHAVING_NOTES"]).read_text().count("run 110") == 1:
                    raise RuntimeError("only the first time")
            case 111:
                time.sleep(0.2)
            case 112:
                os.kill(os.getpid(), signal.SIGKILL)
            case 120:
                return {"output0": x}
        return (np.maximum(x, 0),)


class Broken(BackendDriver):
    """Limits relu to 1, leaves out the last of three or more products in matmul, and inverts eq."""

    kind = "cpu"
    name = "broken"

    def run(self, case: TestCase, inputs: Sequence[np.ndarray[Any, Any]]) -> Any:
        if case.op == "relu":
            return (np.minimum(np.maximum(inputs[0], 0), np.float32(1)),)
        if case.op == "matmul":
            left, right = inputs
            if left.shape[-1] >= 3:
                left, right = left[..., :-1], right[:-1]
            return (np.asarray(left @ right),)
        if case.op == "eq":
            return (inputs[0] != inputs[1],)
        return (np.abs(inputs[0]),)


backend_manager.register(Misbehaving())
backend_manager.register(Broken())
