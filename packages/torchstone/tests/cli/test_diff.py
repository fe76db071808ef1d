"""``torchstone diff``: what it says of two artifacts, and its exit code."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import torchstone as package
from torchstone.artifact import load_artifact, save_artifact

Torchstone = Callable[..., Any]


@pytest.fixture
def other(tmp_path: Path) -> Callable[..., Path]:
    """Writes the artifact of a model."""

    def write(model: Any, *args: torch.Tensor, **options: Any) -> Path:
        return package.export(model, args, **options).save(tmp_path / "other.stone")

    return write


def test_a_copy_is_equal(torchstone: Torchstone, artifact: Path, tmp_path: Path) -> None:
    copied = shutil.copy(artifact, tmp_path / "copy.stone")
    done = torchstone("diff", artifact, copied)
    assert done.code == 0
    assert "mean the same" in done.stdout
    assert torchstone("diff", artifact, copied, "--json").json == {"equal": True, "differences": []}


def test_a_changed_weight_is_named(torchstone: Torchstone, artifact: Path, tmp_path: Path) -> None:
    found = load_artifact(artifact)
    weights = {name: array.copy() for name, array in found.weights.items()}
    weights["weight"][0, :2] += 1
    changed = save_artifact(tmp_path / "changed.stone", replace(found, weights=weights))
    done = torchstone("diff", artifact, changed)
    assert done.code == 1
    assert done.stdout.splitlines() == ["weights: 2 of 6 values of weight"]


def test_other_shapes_weights_and_operations(
    torchstone: Torchstone, artifact: Path, other: Callable[..., Path]
) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(2, 5))

        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return torch.abs(input @ self.weight.T)

    done = torchstone("diff", artifact, other(Model(), torch.randn(4, 5)), "--json")
    assert done.code == 1
    found = {(one["part"], one["what"]): (one["first"], one["second"]) for one in done.json["differences"]}
    assert found["weights", "bias"] == ("float32[2]", None)
    assert found["weights", "weight"] == ("float32[2, 3]", "float32[2, 5]")
    assert found["module", "stablehlo.abs"] == (None, "1")
    assert ("signature", "StableHLO version") not in found
    text = torchstone("diff", artifact, other(Model(), torch.randn(4, 5))).stdout
    assert "weights: bias\n  - float32[2]\n" in text
    assert "module: stablehlo.abs\n  + 1" in text


def test_the_same_operations_in_another_order_differ(
    torchstone: Torchstone, other: Callable[..., Path], tmp_path: Path
) -> None:
    first = package.export(lambda x, y: (x - y, x * y), (torch.ones(2), torch.ones(2))).save(
        tmp_path / "a.stone"
    )
    second = other(lambda x, y: (y - x, x * y), torch.ones(2), torch.ones(2))
    done = torchstone("diff", first, second)
    assert done.code == 1
    assert "module: the same operations with other operands or attributes" in done.stdout


def test_what_is_no_artifact_is_an_error(torchstone: Torchstone, artifact: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.stone"
    wrong.write_bytes(b"nothing")
    done = torchstone("diff", artifact, wrong)
    assert done.code == 1
    assert "wrong.stone" in done.stderr
    assert torchstone("diff", artifact, tmp_path / "absent").code == 2
