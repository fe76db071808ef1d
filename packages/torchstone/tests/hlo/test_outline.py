"""MLIR text whose functions are the modules of the model."""

from __future__ import annotations

import re
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn import functional as F

import torchstone
from torchstone.runtime import get_engine
from training_loops import batches


class Net(nn.Module):
    """Two encoder layers, a module that is called twice, and operations of its own."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.ModuleList([layer, nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)])
        self.head = nn.Sequential(nn.Linear(16, 16), nn.GELU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.head(x) + 1
        result: torch.Tensor = self.head(x).softmax(-1) + 1
        return result


def functions(text: str) -> dict[str, str]:
    """The bodies of the functions of a module, by name."""
    parts = re.split(r"^  func\.func \w+ @", text, flags=re.MULTILINE)[1:]
    return {part.partition("(")[0]: part for part in parts}


def run(text: str, program: torchstone.Program, *inputs: Any) -> list[numpy.ndarray[Any, Any]]:
    state = program.state()
    weights = [state[str(one.target)] for one in program.signature.inputs if one.kind != "input"]
    return [one.to_numpy() for one in get_engine().compile(text)(*weights, *inputs)]


def test_modules_are_functions() -> None:
    torch.manual_seed(0)
    model, x = Net().eval(), torch.randn(2, 5, 16)
    program = torchstone.export(model, (x,))
    text = program.mlir_text(functions=True)
    found = functions(text)
    own = [name for name in found if name.startswith(("layers", "head"))]
    assert own == [
        "layers",
        "layers.0",
        "layers.0.self_attn",
        "layers.0.linear1",
        "layers.0.linear2",
        "layers.1",
        "layers.1.self_attn",
        "layers.1.linear1",
        "layers.1.linear2",
        "head",
        "head.0",
        "head_1",
        "head.0_1",
    ]
    assert re.findall(r"call @([\w.]+)", found["main"]) == ["layers", "head", "head_1"]
    assert re.findall(r"call @([\w.]+)", found["layers"]) == ["layers.0", "layers.1"]
    assert "tensor<f32>)" not in found["layers"].partition("{")[0]  # constants stay where they are used
    (result,) = run(text, program, x.numpy())
    with torch.no_grad():
        numpy.testing.assert_allclose(result, model(x).numpy(), rtol=1e-5, atol=1e-6)
    assert "@layers" not in program.mlir_text()


def test_a_loaded_program_has_them_too(tmp_path: Any) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), torch.randn(3, 4)
    dim = torch.export.Dim("rows", min=2)
    program = torchstone.export(model, (x,), dynamic_shapes=({0: dim},))
    loaded = torchstone.load(program.save(tmp_path / "model.stone"))
    text = loaded.mlir_text(functions=True, debug_info=True)
    assert 'call @"0"' in text
    assert "aten.linear.default" in text


def test_a_training_step_and_a_loop() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters())
    (inputs, targets), *_ = batches(1)
    step = torchstone.export_step(model, optimizer, F.cross_entropy, (inputs, targets))
    expected = step(inputs, targets)
    again = torchstone.export_step(model, optimizer, F.cross_entropy, (inputs, targets))
    results = run(again.mlir_text(functions=True), again, inputs.numpy(), targets.numpy())
    numpy.testing.assert_allclose(results[-1], expected.numpy(), rtol=1e-6)

    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.LSTM(4, 8, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.inner(x * 2)[0].cumsum(1)
            return out

    looped, x = Looped(), torch.randn(2, 7, 4)
    program = torchstone.export(looped, (x,))
    text = program.mlir_text(functions=True)
    assert "call @inner(" in text
    (result,) = run(text, program, x.numpy())
    numpy.testing.assert_allclose(result, looped(x).detach().numpy(), rtol=1e-5, atol=1e-6)
