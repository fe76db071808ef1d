"""``torchstone parity``: the suite from the command line, its reports and exit codes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Torchstone = Callable[..., Any]


def test_parity_of_a_model_with_all_reports(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    files = [tmp_path / "report.md", tmp_path / "report.html"]
    done = torchstone(
        "parity", f"{models}:small", "--steps", 1, "--markdown", files[0], "--html", files[1], "--json"
    )
    assert done.code == 0, done.stdout
    assert done.json["passed"]
    assert done.json["settings"] == {
        "dtype": "float32",
        "rtol": None,
        "atol": None,
        "steps": 1,
        "optimizer": "sgd",
    }
    (model,) = done.json["models"]
    assert all(line["verdict"] == "passed" for line in model["stages"])
    assert all("1 of 1 models passed" in file.read_text() for file in files)


def test_a_tolerance_that_nothing_meets_fails(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("parity", f"{models}:small", "--rtol", 0, "--atol", 0)
    assert done.code == 1
    assert "hot spots" in done.stdout
    assert "0 of 1 models passed (dtype float32, rtol 0.0, atol 0.0, steps 3, optimizer sgd)" in done.stdout


def test_bad_input(torchstone: Torchstone) -> None:
    done = torchstone("parity", "nothing:here")
    assert done.code == 2
    assert "there is no module nothing" in done.stderr
    assert torchstone("parity", "mlp", "--optimizer", "adagrad").code == 2
    assert torchstone("parity", "mlp", "--steps", -1).code == 2
