"""Code that a command imports may call ``sys.exit``, print, or have odd names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Optest = Callable[..., subprocess.CompletedProcess[str]]

LEAVES = "import sys\nsys.exit(0)\n"
LATE = """\
import sys

class Generator:
    def generate(self, case, rng): sys.exit(0)

class Unmakable:
    def __init__(self): sys.exit(0)

def reference(inputs, attributes): sys.exit(0)

def model(): sys.exit(0)

def model_that_leaves():
    import torch
    return (lambda x: sys.exit(0)), (torch.ones(2),)
"""
DRIVER = """\
import sys
from optest.backends import BackendDriver, backend_manager

class Leaving(BackendDriver):
    kind = name = "leaving"
    isolated = False
    def {method}: sys.exit(0)
    {run}

backend_manager.register(Leaving())
"""
PRINTS = """\
import os
print("printed by a plugin")
os.system("echo printed by its child")
"""


@pytest.fixture
def optest(tmp_path: Path) -> Optest:
    """Return a function that runs the command in ``tmp_path``; the process imports modules from there."""

    def run(
        *words: str, stdout: int = subprocess.PIPE, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        known = {**os.environ, "OPTEST_HOME": str(tmp_path / "home"), "PYTHONPATH": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-m", "optest", *words],
            cwd=tmp_path,
            env=known | environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )

    return run


RELU = ("run", "--op", "relu", "--dtype", "float32", "--shape", "2", "--backend", "stub", "--ledger", "none")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*RELU, "--generator", "leaves:Generator"), "importing leaves raised SystemExit: 0"),
        ((*RELU, "--reference", "leaves:f"), "importing leaves raised SystemExit: 0"),
        (
            (*RELU, "--generator", "late:Unmakable"),
            "the generator 'late:Unmakable' cannot be made: SystemExit: 0",
        ),
        (("plan", "check", "plan.yaml"), "importing leaves raised SystemExit: 0"),
        (("coverage", "--model", "leaves:f"), "'leaves:f' gives no model: SystemExit: 0"),
        (("coverage", "--model", "late:model"), "'late:model' gives no model: SystemExit: 0"),
        (
            ("coverage", "--model", "late:model_that_leaves"),
            "the model late:model_that_leaves raised SystemExit: 0",
        ),
    ],
)
def test_leaving_is_an_error(optest: Optest, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    (tmp_path / "leaves.py").write_text(LEAVES)
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "plan.yaml").write_text("cases: [{op: relu, generator: 'leaves:Generator'}]")
    if words[0] == "coverage":
        pytest.importorskip("torch")
        assert optest("run", "--op", "relu", "--backend", "stub").returncode == 0
    done = optest(*words)
    assert (done.returncode, told in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("what", ["--generator=late:Generator", "--reference=late:reference"])
def test_a_case_whose_code_leaves_fails(optest: Optest, tmp_path: Path, what: str) -> None:
    (tmp_path / "late.py").write_text(LATE)
    done = optest(*RELU, what)
    assert done.returncode == 1
    assert "raised SystemExit: 0" in done.stdout


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("run(self, case, inputs)", 1),
        ("supports(self, case)", 1),
        ("check(self, case)", 3),
        ("setup(self)", 3),
    ],
)
def test_a_driver_that_leaves_passes_nothing(optest: Optest, tmp_path: Path, method: str, code: int) -> None:
    run = "" if method.startswith("run") else "def run(self, case, inputs): raise AssertionError"
    (tmp_path / "leaving.py").write_text(DRIVER.format(method=method, run=run))
    words = ("leaving" if one == "stub" else one for one in RELU)
    done = optest(*words, OPTEST_PLUGINS="leaving")
    assert done.returncode == code, done.stderr
    assert "passed" not in done.stdout
    if method.startswith("check"):
        assert "check() of the driver leaving raised SystemExit: 0" in done.stderr


def test_json_is_alone_on_stdout(optest: Optest, tmp_path: Path) -> None:
    (tmp_path / "prints.py").write_text(PRINTS)
    for words in (("list", "relu"), RELU, ("list", "unknown")):
        done = optest(*words, "--json", OPTEST_PLUGINS="prints")
        assert isinstance(json.loads(done.stdout), dict)
        assert "printed by a plugin" in done.stderr
        assert "printed by its child" in done.stderr


def test_what_a_terminal_would_obey_is_not_printed(optest: Optest, tmp_path: Path) -> None:
    odd = "\x1b[31mred\x1b[0m\x1b]0;title\x07\u202e"
    (tmp_path / "plan.yaml").write_text(
        f'cases: [{{op: "{odd}"}}]'.replace("\x1b", r"\e").replace("\x07", r"\a")
    )
    (tmp_path / f"{odd}.yaml").write_text("cases: [{op: relu, shapes: {input0: [2]}, dtypes: float32}]")
    shown = [
        optest("list", odd),
        optest("show", odd),
        optest("diff", "a", "b", "--ledger", f"{odd}.sqlite"),
        optest("plan", "check", "plan.yaml"),
        optest("plan", "check", f"{odd}.yaml"),
        optest("replay", odd, "--plan", f"{odd}.yaml"),
        optest(odd),
    ]
    for done in shown:
        assert "red" in done.stdout + done.stderr
        assert {"\x1b", "\x07", "\u202e"}.isdisjoint(done.stdout + done.stderr)


class TestOutput:
    def test_a_full_stdout_is_one_error(self, optest: Optest) -> None:
        for words in (("list",), ("list", "--json"), ("list", "unknown", "--json"), ("schema",)):
            with open("/dev/full", "w") as full:
                done = optest(*words, stdout=full.fileno())
            assert done.returncode == 3
            assert done.stderr.endswith(": the output cannot be written: No space left on device\n")
            assert len(done.stderr.splitlines()) == 1

    @pytest.mark.kept("<&- >&-")
    @pytest.mark.parametrize("closing", ["<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"])
    def test_closed_streams_take_nothing_along(self, tmp_path: Path, closing: str) -> None:
        command = f"'{sys.executable}' -m optest {' '.join(RELU[:-2])} {closing}"
        home = tmp_path / "home"
        done = subprocess.run(
            ["sh", "-c", command], env={**os.environ, "OPTEST_HOME": str(home)}, timeout=120, cwd=tmp_path
        )
        assert done.returncode == 0
        assert (home / "ledger.sqlite").read_bytes().startswith(b"SQLite format 3")

    def test_any_encoding_will_do(self, optest: Optest) -> None:
        done = optest("list", "\udcff", PYTHONIOENCODING="ascii")
        assert done.returncode == 2
        assert r"unknown operator '\udcff'" in done.stderr

    def test_a_reader_that_has_seen_enough_is_no_error(self, tmp_path: Path) -> None:
        done = subprocess.run(
            ["sh", "-c", f"'{sys.executable}' -m optest list | head -1"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.stderr == ""
