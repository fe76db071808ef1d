"""``torchstone checkpoint``: what a checkpoint holds, and whether it is intact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import checkpoint

Torchstone = Callable[..., Any]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model = torch.nn.Linear(3, 2)
    return checkpoint.save(tmp_path / "x", model=model, step=4, rng=False, note="n", mean=torch.ones(5))


def test_show(torchstone: Torchstone, saved: Path) -> None:
    done = torchstone("checkpoint", "show", str(saved))
    assert done.code == 0
    assert done.stdout.startswith(f"{saved}: torchstone 1.0\nstep 4, saved 20")
    for cells in (("model", "2", "32"), ("metadata", "1", "20"), ("note", "'n'"), ("mean", "float32[5]")):
        assert any(all(cell in line for cell in cells) for line in done.stdout.splitlines()), cells


def test_show_as_json(torchstone: Torchstone, saved: Path) -> None:
    found = torchstone("checkpoint", "show", str(saved), "--json").json
    assert found["sections"] == [
        {"name": "model", "tensors": 2, "bytes": 32},
        {"name": "metadata", "tensors": 1, "bytes": 20},
    ]
    assert (found["kind"], found["step"], found["format"]) == ("torchstone", 4, "1.0")
    assert found["metadata"] == {"note": "'n'", "mean": "float32[5]"}


def test_other_kinds(torchstone: Torchstone, saved: Path, tmp_path: Path) -> None:
    other = checkpoint.convert(saved, tmp_path / "x.pt", to="torch")
    assert torchstone("checkpoint", "show", str(other), "--json").json["sections"][0] == {
        "name": "model",
        "tensors": 2,
        "bytes": 32,
    }
    assert torchstone("checkpoint", "verify", str(other)).code == 0


def test_verify(torchstone: Torchstone, saved: Path) -> None:
    done = torchstone("checkpoint", "verify", str(saved))
    assert (done.code, done.stdout) == (0, "intact\n")
    for name in ("model", "metadata"):
        (file,) = saved.rglob(f"{name}-*")
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    done = torchstone("checkpoint", "verify", str(saved))
    assert done.code == 1
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["model", "metadata"]
    assert "is damaged: the data of 'mean' in metadata-00001-of-00001.safetensors is damaged" in lines[1]
    assert lines[2] == "2 section(s) damaged"
    found = torchstone("checkpoint", "verify", str(saved), "--json")
    assert (found.code, found.json["intact"], len(found.json["problems"])) == (1, False, 2)


def test_what_is_no_checkpoint(torchstone: Torchstone, tmp_path: Path) -> None:
    done = torchstone("checkpoint", "show", str(tmp_path))
    assert done.code == 1
    assert f"torchstone checkpoint show: there is no checkpoint at {tmp_path}" in done.stderr
    assert "Traceback" not in done.stderr
    assert torchstone("checkpoint", "show", str(tmp_path / "gone")).code == 2
