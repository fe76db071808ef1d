"""Users' mistakes and broken surroundings: one clear message each, the exit code, nothing left behind."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from torchstone.config import override
from torchstone.parity import compilation, installation

Torchstone = Callable[..., Any]

SYNTAX = "write package.module:factory, file.py:factory, or one of the zoo: mlp, cnn, "


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nothing", "MODEL 'nothing' is neither place:factory nor in the zoo\n  next: " + SYNTAX),
        ("package.module:", "MODEL 'package.module:' names no factory after the colon\n  next: " + SYNTAX),
        (
            "no.such.module:f",
            "MODEL 'no.such.module:f': there is no module no.such.module\n  next: " + SYNTAX,
        ),
        ("missing.py:f", "MODEL 'missing.py:f': there is no file missing.py\n  next: check the path"),
        ("{models}:nope", "{models} has no 'nope'\n  next: its functions: small, keywords, unsupported"),
        (
            "{models}:number",
            "{models}:number is not a factory but has type int\n  next: a factory is a function",
        ),
        (
            "{models}:fails",
            "the factory {models}:fails failed: ValueError: the checkpoint is gone (at {models}:",
        ),
        ("{models}:bare", "the factory {models}:bare returned a Linear\n  next: a factory is a function"),
        ("{models}:no_tuple", "returned a Tensor as example inputs\n  next: return a tuple"),
    ],
)
def test_a_model_that_cannot_be_had(torchstone: Torchstone, models: Path, model: str, message: str) -> None:
    done = torchstone("explain", model.format(models=models))
    assert done.code == 2
    assert message.format(models=models) in done.stderr
    assert done.stderr.startswith("torchstone explain: ")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(("command", "option"), [("profile", "--calls"), ("parity", "--steps")])
def test_numbers_of_calls_have_a_bound(torchstone: Torchstone, command: str, option: str) -> None:
    done = torchstone(command, option, "9" * 25, "mlp")
    assert done.code == 2
    assert "<=x<=10000." in done.stderr


def test_a_file_with_a_syntax_error(torchstone: Torchstone, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    done = torchstone("verify", f"{path}:f")
    assert done.code == 2
    assert f"importing {path} failed: SyntaxError: invalid syntax (broken.py, line 1)\n" in done.stderr


@pytest.mark.parametrize("version", ["9.9", "99.0.0", "newest"])
def test_a_stablehlo_version_that_cannot_be_written(
    torchstone: Torchstone, models: Path, tmp_path: Path, version: str
) -> None:
    done = torchstone("export", f"{models}:small", "-o", tmp_path / "x", "--stablehlo-version", version)
    assert done.code == 2
    assert version in done.stderr
    assert "next: use minimum, week_12, week_4, current, or a number from " in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_export_to_nowhere(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    for kind in ("artifact", "mlir"):
        done = torchstone("export", f"{models}:small", "-o", tmp_path / "no" / "x", "--emit", kind)
        assert done.code == 1
        assert "No such file or directory" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_artifact_does_not_go_to_stdout(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("export", f"{models}:small", "-o", "-")
    assert done.code == 2
    assert "-o - is for mlir, bytecode and graph, without --json: give a file" in done.stderr


def test_an_unsupported_operator(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    done = torchstone("export", f"{models}:unsupported", "-o", tmp_path / "x")
    assert done.code == 1
    assert "torchstone_cli_tests.mystery.default (1×) at " in done.stderr
    assert "next: `torchstone ops` prints every operator that can be lowered" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_missing_artifact(torchstone: Torchstone) -> None:
    done = torchstone("run", "missing.stone")
    assert done.code == 2
    assert "File 'missing.stone' does not exist" in done.stderr


def test_a_file_that_is_no_artifact(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("run", models)
    assert done.code == 1
    assert f"torchstone run: {models} is not a usable artifact: " in done.stderr


def test_an_unknown_device(torchstone: Torchstone, artifact: Path) -> None:
    for command in (["run", artifact], ["verify", "mlp"]):
        done = torchstone(*command, "--device", "nowhere")
        assert done.code == 3
        assert "there is no platform 'nowhere'" in done.stderr
        assert "next: install its PJRT plugin" in done.stderr


def test_an_unknown_engine(torchstone: Torchstone, artifact: Path) -> None:
    done = torchstone("run", artifact, "--engine", "steam")
    assert done.code == 2
    assert "unknown engine 'steam'\n  next: engines: " in done.stderr


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (numpy.zeros((4, 5), numpy.float32), "has shape (4, 5); expected [4, 3]"),
        (numpy.zeros((4, 3), numpy.int32), "int32"),
    ],
)
def test_an_input_that_does_not_fit(
    torchstone: Torchstone, artifact: Path, tmp_path: Path, array: Any, message: str
) -> None:
    numpy.save(tmp_path / "x.npy", array)
    done = torchstone("run", artifact, "--input", tmp_path / "x.npy", "--output", tmp_path / "out.npz")
    assert done.code == 2
    assert message in done.stderr
    assert not (tmp_path / "out.npz").exists()


def test_too_many_inputs(torchstone: Torchstone, artifact: Path, tmp_path: Path) -> None:
    numpy.savez(tmp_path / "x.npz", numpy.zeros(1), numpy.zeros(1))
    done = torchstone("run", artifact, "--input", tmp_path / "x.npz")
    assert done.code == 2
    assert "2 input arrays were given; the program takes 1: input: float32[4, 3]" in done.stderr


def test_an_input_file_that_holds_no_array(torchstone: Torchstone, artifact: Path, models: Path) -> None:
    done = torchstone("run", artifact, "--input", models)
    assert done.code == 2
    assert f"the input file {models} is no .npy or .npz file of numbers\n  next: write it with" in done.stderr


def test_a_size_that_the_program_does_not_have(torchstone: Torchstone, artifact: Path) -> None:
    done = torchstone("run", artifact, "--dim", "batch=3")
    assert done.code == 2
    assert "there is no dimension batch\n  next: symbolic dimensions: none" in done.stderr
    assert "'batch' is not NAME=SIZE" in torchstone("run", artifact, "--dim", "batch").stderr


def test_errors_as_json(torchstone: Torchstone) -> None:
    done = torchstone("explain", "nothing", "--json")
    assert done.code == 2
    assert done.json["error"]["type"] == "ModelError"
    assert done.json["error"]["message"] == "MODEL 'nothing' is neither place:factory nor in the zoo"
    assert done.json["error"]["hint"].startswith("write package.module:factory")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_the_traceback_on_request(
    torchstone: Torchstone, models: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "variable":
        monkeypatch.setenv("TORCHSTONE_TRACEBACK", "1")
    option = ["--traceback"] if how == "option" else []
    done = torchstone(*option, "explain", f"{models}:fails")
    assert done.code == 2
    assert "Traceback (most recent call last)" in done.stderr
    assert "in fails" in done.stderr


def test_usage(torchstone: Torchstone) -> None:
    for arguments in (
        ["export", "mlp"],
        ["verify", "mlp", "--dtype", "int8"],
        ["verify", "mlp", "--rtol", "-1"],
    ):
        done = torchstone(*arguments)
        assert done.code == 2
        assert "Usage: " in done.stderr


def test_the_demo_without_scikit_learn(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    done = torchstone("demo")
    assert done.code == 3
    assert done.stderr == (
        "torchstone demo: the demo needs scikit-learn, which brings its digits\n"
        "  next: pip install 'torchstone[demo]'\n"
    )


def test_a_zoo_model_without_transformers(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    done = torchstone("explain", "bert")
    assert done.code == 3
    assert "next: pip install 'torchstone[models]'" in done.stderr


def test_doctor_finds_problems(torchstone: Torchstone, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with override(cache_dir=shared, device="nowhere"):
        done = torchstone("doctor")
    assert done.code == 3
    assert f"the compilation cache {shared} is not used: others can write to it (mode 777)" in done.stdout
    assert done.stdout.count("problem: there is no platform 'nowhere'") == 1
    assert done.stdout.endswith("2 problem(s)\n")


def test_doctor_of_a_backend_that_is_wrong(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "compiled", lambda function: lambda x: function(x) + 1)
    done = torchstone("doctor", "--backend")
    assert done.code == 3
    assert "problem: the compile backend computes a matrix product or its gradient wrong" in done.stdout
    monkeypatch.setattr(installation, "entry_points", lambda **_: [])
    done = torchstone("doctor", "--backend")
    assert done.code == 3
    assert "compile backend: not registered, does not work" in done.stdout
    assert "problem: the compile backend is not registered" in done.stdout


def test_interruption(torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(progress: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(installation, "inspect_installation", interrupted)
    done = torchstone("doctor")
    assert done.code == 130
    assert done.stderr.endswith("interrupted\n")


def test_an_end_of_input_is_not_an_interruption(
    torchstone: Torchstone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(progress: object) -> None:
        raise EOFError("marshal data too short")

    monkeypatch.setattr(installation, "inspect_installation", cut_off)
    done = torchstone("doctor")
    assert done.code == 3
    assert done.stderr.endswith(
        "input ended before it was whole: marshal data too short\n  next: --traceback shows where\n"
    )


def test_a_mistake_in_a_process_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torchstone", "verify", "nothing"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("torchstone verify: MODEL 'nothing' is neither")


LEAVING = """\
import os
import sys
import torch

print("printed by the model")
os.system("echo printed by its child")

def leaves():
    sys.exit(0)

class Leaving(torch.nn.Module):
    def forward(self, x):
        sys.exit(0)

def inside():
    return Leaving(), (torch.ones(2),)

def small():
    return torch.nn.Linear(3, 2), (torch.randn(4, 3),)
"""


@pytest.fixture
def leaving(tmp_path: Path) -> Path:
    path = tmp_path / "leaving.py"
    path.write_text(LEAVING)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("verify",),
        ("explain",),
        ("ops",),
        ("export", "-o", "x.stone"),
        ("export", "-o", "-", "--emit", "mlir"),
    ],
)
def test_leaving_is_an_error(torchstone: Torchstone, leaving: Path, words: tuple[str, ...]) -> None:
    for factory, line in (("leaves", 9), ("inside", 13)):
        done = torchstone(words[0], f"{leaving}:{factory}", *words[1:])
        assert done.code == 2
        assert f"{leaving}:{line}" in done.stderr
        assert "SystemExit: 0" in done.stderr or "called sys.exit(0)" in done.stderr
    exits = leaving.with_name("exits.py")
    exits.write_text("raise SystemExit\n")
    done = torchstone(words[0], f"{exits}:f", *words[1:])
    assert done.code == 2
    assert f"importing {exits} failed: SystemExit" in done.stderr


def process(*words: object, folder: Path, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "torchstone", *map(str, words)]
    return subprocess.run(command, stderr=subprocess.PIPE, cwd=folder, timeout=300, check=False, **options)


def test_what_a_model_prints_is_no_data(leaving: Path, tmp_path: Path) -> None:
    model = f"{leaving}:small"
    done = process("export", model, "-o", "-", "--emit", "mlir", folder=tmp_path, stdout=subprocess.PIPE)
    assert done.stdout.startswith(b"module @")
    assert b"printed" not in done.stdout
    assert b"printed by the model" in done.stderr
    assert b"printed by its child" in done.stderr


@pytest.mark.conformance
def test_what_a_model_prints_is_no_summary(leaving: Path, tmp_path: Path) -> None:
    model = f"{leaving}:small"
    done = process("export", model, "-o", "x.stone", "--json", folder=tmp_path, stdout=subprocess.PIPE)
    assert json.loads(done.stdout)["output"] == "x.stone"
    assert b"printed by its child" in done.stderr


def test_a_device_as_output_keeps_its_place(
    torchstone: Torchstone, models: Path, artifact: Path, tmp_path: Path
) -> None:
    for emit in ("artifact", "mlir"):
        done = torchstone("export", f"{models}:small", "--emit", emit, "-o", "/dev/null")
        assert (done.code, done.stderr) == (0, "")
        assert "bytes" not in done.stdout
        done = torchstone("export", f"{models}:small", "--emit", emit, "-o", "/dev/full")
        assert done.code == 1
        assert "No space left on device" in done.stderr
    done = torchstone("run", artifact, "--output", "/dev/null")
    assert done.code == 0
    assert all(Path(device).is_char_device() for device in ("/dev/null", "/dev/full"))
    for arguments in (
        ("run", artifact, "--output", "-"),
        ("parity", f"{models}:small", "--json", "--html", "-"),
        ("parity", f"{models}:small", "--markdown", "/dev/stdout"),
        ("bisect", f"{models}:small", "--script", "-"),
    ):
        done = torchstone(*arguments)
        assert done.code == 2
        assert f"{arguments[-2]} is for a file: stdout has the report" in done.stderr


def test_a_full_stdout_is_one_error(artifact: Path, tmp_path: Path) -> None:
    for words in ((), ("--json",)):
        with open("/dev/full", "w") as full:
            done = process("run", artifact, *words, folder=tmp_path, stdout=full)
        assert done.returncode == 3
        assert done.stderr.endswith(b": the output cannot be written: No space left on device\n")
        assert b"Traceback" not in done.stderr
