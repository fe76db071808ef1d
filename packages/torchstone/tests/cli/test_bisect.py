"""``torchstone bisect``: what it prints, and its exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from injected_faults import wrong_engine

Torchstone = Callable[..., Any]

FEW = ("--no-fresh-process", "--no-optimizer")


def test_nothing_departs(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("bisect", f"{models}:small", *FEW)
    assert done.code == 0, done.stderr
    assert "nothing departs; " in done.stdout
    assert "values compared on pjrt" in done.stdout


def test_what_departs_is_printed_and_written_as_a_script(torchstone: Torchstone, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef make():\n    return torch.sin, (torch.ones(3),)\n")
    script = tmp_path / "shown.py"
    with wrong_engine("stablehlo.sine", "stablehlo.cosine"):
        done = torchstone("bisect", f"{file}:make", *FEW, "--script", str(script))
        found = torchstone("bisect", f"{file}:make", *FEW, "--json").json
    assert done.code == 1
    assert "the first value that departs is sin (forward): engine" in done.stdout
    assert "reference: right" in done.stdout
    assert "ULP" in done.stdout
    assert "torch.ops.aten.sin.default" in script.read_text()
    assert (found["departs"], found["finding"]["kind"]) == (True, "engine")
    assert found["finding"]["comparison"]["max_ulp"] > 0


def test_a_script_that_cannot_be_written(torchstone: Torchstone, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef make():\n    return torch.sin, (torch.ones(3),)\n")
    script = tmp_path / "absent" / "shown.py"
    script.parent.write_text("a file, not a folder")
    with wrong_engine("stablehlo.sine", "stablehlo.cosine"):
        done = torchstone("bisect", f"{file}:make", *FEW, "--script", str(script))
    assert done.code == 1
    assert f"Could not open file '{script}'" in done.stderr
    assert "the first value that departs is sin" in done.stdout  # the result is printed before the error


def test_a_tolerance_decides_what_departs(torchstone: Torchstone, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef make():\n    return torch.sin, (torch.ones(3) / 4,)\n")
    with wrong_engine("stablehlo.sine", "stablehlo.tanh"):
        assert torchstone("bisect", f"{file}:make", *FEW).code == 1
        assert torchstone("bisect", f"{file}:make", *FEW, "--atol", "0.1").code == 0


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        ("fails", (), "the factory"),
        ("no_tuple", (), "as example inputs"),
        ("small", ("--optimizer", "LBFGS"), "no step can contain an optimizer called 'LBFGS'"),
        ("small", ("--rtol", "-1"), "--rtol"),
        ("small", ("--engine", "steam"), "unknown engine 'steam'"),
    ],
)
def test_bad_input_is_one_error(
    torchstone: Torchstone, models: Path, model: str, options: tuple[str, ...], said: str
) -> None:
    done = torchstone("bisect", f"{models}:{model}", "--no-fresh-process", *options)
    assert done.code == 2
    assert said in done.stderr


def test_a_model_that_eager_cannot_run(torchstone: Torchstone, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("import torch\n\ndef make():\n    return torch.nn.Linear(3, 2), (torch.ones(4, 5),)\n")
    done = torchstone("bisect", f"{file}:make")
    assert done.code == 2
    assert "eager PyTorch cannot run the model: RuntimeError" in done.stderr
