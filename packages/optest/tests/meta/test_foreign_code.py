"""Foreign code may raise anything; the error becomes the result of its case, and the run goes on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

Optest = Any  # the fixture's class, in conftest

MODULE = """
import sys
import numpy as np
from optest.backends import BackendDriver, backend_manager
from optest.generators import RandomTensorGenerator

class Odd(BaseException):
    pass

class Unreadable(Exception):
    def __str__(self):
        sys.exit(0)

WAYS = {
    "exit": lambda: sys.exit(0),
    "interrupt": lambda: (_ for _ in ()).throw(KeyboardInterrupt()),
    "generator": lambda: (_ for _ in ()).throw(GeneratorExit()),
    "odd": lambda: (_ for _ in ()).throw(Odd("odd")),
    "surrogate": lambda: (_ for _ in ()).throw(RuntimeError("a \\udc80 and a \\0")),
    "unreadable": lambda: (_ for _ in ()).throw(Unreadable()),
}

class Driver(BackendDriver):
    kind = "cpu"
    def __init__(self, name, isolated):
        self.name, self.isolated = name, isolated
    def run(self, case, inputs):
        size = case.shapes["input0"][0]
        if size >= 100:
            list(WAYS.values())[size - 100]()
        return (np.maximum(inputs[0], 0),)

class Leaving(RandomTensorGenerator):
    def generate(self, case, rng):
        sys.exit(0)

def leaving(inputs, attributes):
    sys.exit(0)

class LeavingLate(Driver):
    def teardown(self):
        sys.exit(0)

class LeavingEarly(Driver):
    def check(self, case):
        sys.exit(0)

backend_manager.register(Driver("inline", False))
backend_manager.register(Driver("apart", True))
backend_manager.register(LeavingLate("late", False))
backend_manager.register(LeavingEarly("early", False))
"""


@pytest.fixture
def foreign(optest: Optest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Optest:
    (tmp_path / "foreign_code.py").write_text(MODULE)
    (tmp_path / "leaves_on_import.py").write_text("import sys; sys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("OPTEST_PLUGINS", "foreign_code")
    return optest


def ran(optest: Optest, *words: str) -> tuple[int, dict[int, dict[str, Any]], str]:
    done = optest(
        "run", "--op", "relu", "--dtype", "float32", "--ledger", "none", *words, "--report", "json:r"
    )
    report = optest.folder / "r"
    cases = json.loads(report.read_text())["cases"] if report.exists() else []
    return done.returncode, {one["shapes"]["input0"][0]: one for one in cases}, done.stdout + done.stderr


@pytest.mark.parametrize("driver", ["inline", "apart"])
def test_whatever_a_driver_raises_is_the_result_of_its_case(foreign: Optest, driver: str) -> None:
    shapes = [word for size in (1, *range(100, 106), 2) for word in ("--shape", str(size))]
    code, cases, text = ran(foreign, *shapes, "--backend", driver)
    assert code == 1, text
    assert {size: one["status"] for size, one in cases.items()} == {
        1: "passed", 2: "passed", **dict.fromkeys(range(100, 106), "error"),
    }  # fmt: skip
    assert [cases[size]["reason"] for size in range(100, 106)] == [
        "SystemExit: 0",
        "KeyboardInterrupt:",
        "GeneratorExit:",
        "Odd: odd",
        "RuntimeError: a \\udc80 and a \\0",
        "Unreadable: (its text cannot be read: that raises SystemExit)",
    ]


@pytest.mark.parametrize(
    ("flag", "path", "who"),
    [
        ("--generator", "foreign_code:Leaving", "the generator foreign_code:Leaving"),
        ("--reference", "foreign_code:leaving", "the reference foreign_code:leaving"),
    ],
)
def test_sys_exit_is_never_success(foreign: Optest, flag: str, path: str, who: str) -> None:
    code, cases, _ = ran(foreign, "--shape", "4", "--backend", "inline", flag, path)
    assert code == 1
    assert cases[4]["reason"] == f"{who} raised SystemExit: 0"


@pytest.mark.parametrize("flag", ["--generator", "--reference"])
def test_a_module_that_exits_when_it_is_imported(foreign: Optest, flag: str) -> None:
    code, _, text = ran(foreign, "--shape", "4", "--backend", "inline", flag, "leaves_on_import:x")
    assert code == 2
    assert "importing leaves_on_import raised SystemExit: 0" in text


def test_a_driver_that_exits_when_it_is_asked_or_taken_down(foreign: Optest) -> None:
    code, _, text = ran(foreign, "--shape", "4", "--backend", "early")
    assert (code, "check() of the driver early raised SystemExit: 0" in text) == (3, True)
    code, cases, text = ran(foreign, "--shape", "4", "--backend", "late")
    assert (code, cases[4]["status"]) == (3, "passed")
    assert "teardown of the driver late: SystemExit: 0" in text


@pytest.mark.parametrize("backend", ["inline", "apart"])
def test_ctrl_c_still_ends_the_run(foreign: Optest, backend: str) -> None:
    """Ctrl-C is pressed while a driver runs, in optest's own process or in a worker."""
    slow = "import time\nfrom foreign_code import Driver, backend_manager\n"
    slow += "class Slow(Driver):\n"
    slow += "    def run(self, case, inputs):\n"
    slow += "        if case.shapes['input0'][0] == 9:\n"
    slow += "            open('sleeping', 'w').close(); time.sleep(60)\n"
    slow += "        return super().run(case, inputs)\n"
    slow += f"backend_manager.register(Slow('slow', {backend == 'apart'}))\n"
    (foreign.folder / "slow_code.py").write_text(slow)
    os.environ["OPTEST_PLUGINS"] = "foreign_code,slow_code"
    try:
        process = foreign.start(
            *("run", "--op", "relu", "--dtype", "float32", "--shape", "1", "--shape", "9", "--shape", "2"),
            *("--backend", "slow", "--ledger", "none", "--report", "json:r"),
        )
    finally:
        os.environ["OPTEST_PLUGINS"] = "foreign_code"
    import time

    limit = time.monotonic() + 60
    while not (foreign.folder / "sleeping").exists():
        assert time.monotonic() < limit
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, out + err
    summary = json.loads((foreign.folder / "r").read_text())["summary"]
    assert (summary["interrupted"], summary["ran"]) == (True, 1)


@pytest.mark.parametrize("backend", ["inline", "apart"])
def test_a_case_that_does_not_fit_into_memory_is_one_error(foreign: Optest, backend: str) -> None:
    """The case does not run, because the system would kill the process, which may be optest's own."""
    code, cases, _ = ran(foreign, "--shape", "4", "--shape", str(2**50), "--backend", backend)
    assert code == 1
    assert cases[4]["status"] == "passed"
    assert cases[2**50]["status"] == "error"
    assert "the case needs at least 29360128.0 GiB of memory, and " in cases[2**50]["reason"]
