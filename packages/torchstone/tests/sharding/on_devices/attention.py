"""An attention block and a Llama-style model on four devices, in every way of splitting them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import torchstone
from sharded_programs import agrees, collectives, compiled_text
from torchstone.parity.zoo.families import llama


class Attention(torch.nn.Module):
    """Attention with four heads over sequences [batch, length, 32]."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (torch.nn.Linear(32, 32) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [one(x).unflatten(-1, (4, 8)).transpose(1, 2) for one in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(heads[0], heads[1], heads[2], is_causal=True)
        result: torch.Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return result


COLUMNS = {f"{name}.weight": ("model", None) for name in "qkv"} | {f"{name}.bias": "model" for name in "qkv"}
WAYS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "data": ({"data": 4}, {"x": "data"}),
    "tensor": ({"model": 4}, {**COLUMNS, "out.weight": (None, "model")}),
    "sequence": ({"sequence": 4}, {"x": (None, "sequence")}),
    "fully sharded": ({"data": 4}, {"x": "data", "*.weight": "data", "*.bias": "data"}),
    "data and tensor": ({"data": 2, "model": 2}, {"x": "data", **COLUMNS, "out.weight": (None, "model")}),
}


@pytest.mark.parametrize("way", WAYS)
def test_attention(way: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = Attention(), torch.randn(8, 16, 32)
    axes, shardings = WAYS[way]
    program = torchstone.export(model, (x,), mesh=torchstone.Mesh(axes), shardings=shardings)
    agrees(program, model, x)
    agrees(torchstone.load(program.save(tmp_path / "attention.stone")), model, x)
    assert bool(collectives(compiled_text(program, tmp_path))) == (way != "data")


SPLIT = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
LLAMA: dict[str, dict[str, Any]] = {
    "data": {"input_ids": "data"},
    "tensor": {
        **{f"*.{name}.weight": ("data", None) for name in SPLIT},
        "*.o_proj.weight": (None, "data"),
        "*.down_proj.weight": (None, "data"),
        "lm_head.weight": ("data", None),
    },
    "sequence": {"input_ids": (None, "data")},
    "fully sharded": {"input_ids": "data", "*.weight": "data"},
}


@pytest.mark.parametrize("way", LLAMA)
def test_llama(way: str) -> None:
    torch.manual_seed(0)
    model, (tokens,) = llama(2)
    mesh = torchstone.Mesh({"data": 2})
    program = torchstone.export(model, (tokens,), mesh=mesh, shardings=LLAMA[way])
    agrees(program, model, tokens)
