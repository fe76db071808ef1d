"""Helpers for tests of sharded programs: the program of one device, and comparisons with one device."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

import torchstone
from torchstone.artifact import load_artifact
from torchstone.runtime.engines import get_engine
from torchstone.runtime.pjrt import PjrtEngine

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def compiled_text(program: torchstone.Program, folder: Path) -> str:
    """The optimized HLO that each device of the mesh runs."""
    artifact = load_artifact(program.save(folder / "compiled.stone"))
    engine = get_engine()
    assert isinstance(engine, PjrtEngine)
    mesh = artifact.signature.mesh
    assert mesh is not None
    shardings = [spec.sharding or () for spec in artifact.signature.inputs]
    return engine.compile_for_mesh(artifact.module, mesh, shardings).compiled.text


def collectives(text: str) -> dict[str, int]:
    """How many operations of each kind send data between devices."""
    found = {name: len(re.findall(rf"= \S+ {name}(?:-start)?\(", text)) for name in COLLECTIVES}
    return {name: count for name, count in found.items() if count}


def parameter_shapes(text: str) -> list[tuple[int, ...]]:
    """The shapes of the arguments of one device's program."""
    (layout,) = re.findall(r"entry_computation_layout=\{\((.*?)\)->", text)
    return [
        tuple(map(int, dims.split(","))) if dims else () for dims in re.findall(r"\w+\[([\d,]*)\]", layout)
    ]


def agrees(sharded: torchstone.Program, model: Any, *args: Any) -> None:
    """Check that the program gives the model's results on one device, within PyTorch's tolerances.

    Bits may differ, because the parts of sums are added in another order.
    """
    with torch.no_grad():
        torch.testing.assert_close(sharded(*args), model(*args))
