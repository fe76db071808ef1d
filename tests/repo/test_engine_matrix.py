"""The recorded matrix of models and engines: it is complete, its bounds hold, and recording resumes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import engine_matrix
import pytest
from engine_matrix import ENGINES, EQUAL, RESULTS, page, record

from torchstone.parity.inventory import models

LEAST_EQUAL = {"pjrt": 1.0, "iree": 0.9, "jax": 0.9}
"""The share of models that must be equal on an engine."""


@pytest.fixture(scope="module")
def recorded() -> Any:
    return json.loads(RESULTS.read_text("utf-8"))


def test_every_model_has_a_cell_for_every_engine(recorded: Any) -> None:
    assert list(recorded["cells"]) == [entry.name for entry in models()]
    assert all(list(row) == list(ENGINES) and all(row.values()) for row in recorded["cells"].values())


@pytest.mark.parametrize("engine", LEAST_EQUAL)
def test_most_models_are_equal(recorded: Any, engine: str) -> None:
    found = [row[engine] for row in recorded["cells"].values()]
    assert found.count(EQUAL) >= LEAST_EQUAL[engine] * len(found)


def test_recording_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(engine_matrix, "versions", dict)
    asked: list[tuple[str, str]] = []

    def run(self: Any, name: str, engine: str) -> str:
        asked.append((name, engine))
        if asked.count(("mul", "jax")) == 1 and asked[-1] == ("mul", "jax"):
            raise KeyboardInterrupt
        return EQUAL

    monkeypatch.setattr(engine_matrix._Child, "run", run)
    path = tmp_path / "matrix.json"
    with pytest.raises(KeyboardInterrupt):
        record(path, ["add", "mul"])
    assert not path.exists()
    record(path, ["add", "mul"])
    assert len(asked) == 2 * len(ENGINES) + 1
    assert json.loads(path.read_text())["cells"] == dict.fromkeys(
        ["add", "mul"], dict.fromkeys(ENGINES, EQUAL)
    )


@pytest.mark.conformance
def test_a_child_that_dies_costs_one_cell() -> None:
    child = engine_matrix._Child()
    try:
        assert child.run("no such model", "pjrt").startswith("ended its process")
        assert child.run("complex_abs", "no such engine") == "unknown engine 'no such engine'"
        assert child.run("complex_abs", "pjrt") == EQUAL
    finally:
        child.stop()


def test_the_page_names_what_is_not_equal() -> None:
    cells = {"angle": {**dict.fromkeys(ENGINES, EQUAL), "iree": "IREE cannot | compile it"}}
    text = page({"versions": {"torch": "2"}, "cells": cells})
    assert "| `angle` | IREE | IREE cannot \\| compile it |" in text
    assert "| IREE | `iree` | 0 of 1 (0%) |" in text
    assert "| `angle` | complex | equal | equal | **no** | equal |" in text
