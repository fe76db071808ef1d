"""``torchstone profile``: tables, JSON, the Chrome trace, and bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Torchstone = Callable[..., Any]


def test_profile_prints_tables(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("profile", f"{models}:small", "--no-roofline", "--calls", 3)
    assert done.code == 0, done.stderr
    for part in ("operators", "kernels", "phases of compilation", "aten.addmm.default"):
        assert part in done.stdout
    assert "3 calls of programs took" in done.stdout


def test_profile_as_json_with_a_trace(torchstone: Torchstone, models: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = torchstone("profile", f"{models}:small", "--calls", 2, "--trace", trace, "--json")
    assert done.code == 0, done.stderr
    data = done.json
    assert data["mode"] == "inference"
    assert {one["calls"] for one in data["programs"] if one["calls"]} == {2}
    assert set(data["peaks"]) == {"flops", "bytes"}
    assert all(one["bound"] in ("compute", "memory", None) for one in data["operators"])
    assert {"name", "ph", "ts"} <= set(json.loads(trace.read_text())["traceEvents"][0])


@pytest.mark.parametrize("roofline", ["--roofline", "--no-roofline"])
@pytest.mark.parametrize(
    ("option", "says"), [("--engine", "unknown engine 'x'"), ("--device", "no platform 'x'")]
)
def test_an_engine_or_a_device_that_is_not_there(
    torchstone: Torchstone, models: Path, option: str, says: str, roofline: str
) -> None:
    done = torchstone("profile", f"{models}:small", option, "x", roofline)
    assert done.code == (2 if option == "--engine" else 3)
    assert says in done.stderr.splitlines()[0]


def test_profile_of_training_has_the_whole_step(torchstone: Torchstone, models: Path) -> None:
    done = torchstone("profile", f"{models}:small", "--train", "--no-roofline", "--calls", 2, "--json")
    assert done.code == 0, done.stderr
    data = done.json
    assert data["mode"] == "training"
    assert [one["name"] for one in data["programs"] if one["calls"] == 2] == ["1: step"]
    assert {"(loss)", "(optimizer)"} <= {one["name"] for one in data["modules"]}
    assert [one["name"] for one in data["recompiles"]] == ["training step"]
    assert "state" in data["recompiles"][0]["reason"]  # the optimizer has none before its first step


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing:here"], 2, "nothing"),
        (["{models}:fails"], 2, "the checkpoint is gone"),
        (["{models}:keywords", "--train", "--no-roofline"], 2, "there is nothing to train"),
        (["{models}:small", "--calls", "0"], 2, "--calls"),
        (["{models}:small", "--no-roofline", "--trace", "{models}/a/b.json"], 1, "b.json"),
    ],
)
def test_bad_input(
    torchstone: Torchstone, models: Path, arguments: list[str], code: int, message: str
) -> None:
    done = torchstone("profile", *(argument.format(models=models) for argument in arguments))
    assert done.code == code
    assert message in done.stderr
