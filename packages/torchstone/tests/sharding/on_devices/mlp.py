"""A multilayer perceptron on two devices, with data and with tensor parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import torchstone
from sharded_programs import agrees, collectives, compiled_text, parameter_shapes

MODEL = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 4))

DATA = {"input": ("data",)}
TENSOR = {"0.weight": ("data", None), "0.bias": "data", "2.weight": (None, "data")}


@pytest.mark.parametrize(
    ("shardings", "expected", "shape"),
    [(DATA, {}, (4, 16)), (TENSOR, {"all-reduce": 1}, (8, 16))],
    ids=["data", "tensor"],
)
def test_mlp(
    shardings: dict[str, Any], expected: dict[str, int], shape: tuple[int, ...], tmp_path: Path
) -> None:
    x = torch.randn(8, 16)
    program = torchstone.export(MODEL, (x,), mesh=torchstone.Mesh({"data": 2}), shardings=shardings)
    agrees(program, MODEL, x)
    loaded = torchstone.load(program.save(tmp_path / "mlp.stone"))
    agrees(loaded, MODEL, x)
    assert isinstance(loaded(x.numpy()), numpy.ndarray)
    text = compiled_text(program, tmp_path)
    assert collectives(text) == expected
    assert parameter_shapes(text)[-1] == shape
