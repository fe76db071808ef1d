"""Every released format is read for ever: a checkpoint of each is kept here."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy
import pytest
import torch

from checkpoint_cases.bits import same
from checkpoint_cases.format_fixture import metadata, model, optimizer
from torchstone import checkpoint

KEPT = sorted(Path(__file__).parent.glob("format-*"))


def test_the_present_format_is_among_them() -> None:
    versions = [
        json.loads((path / "checkpoint.jsonl").read_text().splitlines()[0])["version"] for path in KEPT
    ]
    assert list(checkpoint.VERSION) in versions
    assert [path.name for path in KEPT] == [f"format-{major}.{minor}" for major, minor in versions]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_checkpoint_is_read(path: Path) -> None:
    expected = model()
    other = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    other[2].weight = other[0].weight
    adam = torch.optim.Adam(other.parameters())
    loaded = checkpoint.load(path, model=other, optimizer=adam)
    drawn = torch.rand(2), numpy.random.rand(), random.random()
    assert loaded.step == 7
    assert same(loaded.metadata, metadata())
    trained = optimizer(expected)
    assert same(dict(other.state_dict()), dict(expected.state_dict()))
    assert same(adam.state_dict(), trained.state_dict())
    found = checkpoint.load(path)
    assert found["model"]["0.weight"] is found["model"]["2.weight"]
    torch.manual_seed(0)
    torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)  # these draw what the model drew before the save
    assert torch.equal(torch.rand(2), drawn[0])
    assert numpy.isfinite(drawn[1:]).all()


def test_the_documented_format_is_the_written_one() -> None:
    page = (Path(__file__).parents[4] / "docs" / "checkpoints.md").read_text("utf-8")
    described = page.partition("## The format\n")[2].partition("\n### ")[0]
    fields = {
        name
        for row in re.findall(r"^\| (.+?) \|", described, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    written = json.loads((KEPT[-1] / "checkpoint.jsonl").read_text().splitlines()[1])
    assert fields == written.keys()
