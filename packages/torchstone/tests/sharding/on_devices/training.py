"""Whole training steps on several devices: losses, weights and optimizer state equal those of one device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.nn import functional as F

import torchstone
from training_loops import batches

WAYS: dict[str, tuple[dict[str, int], dict[str, Any]]] = {
    "data": ({"data": 4}, {"inputs": "data", "targets": "data"}),
    "tensor": ({"model": 4}, {"0.weight": "model", "0.bias": "model", "3.weight": (None, "model")}),
    "fully sharded": (
        {"data": 4},
        {"inputs": "data", "targets": "data", "0.weight": "data", "3.weight": (None, "data")},
    ),
    "data and tensor": (
        {"data": 2, "model": 2},
        {"inputs": "data", "targets": "data", "0.weight": "model", "3.weight": (None, "model")},
    ),
    "state alone": ({"data": 4}, {"inputs": "data", "targets": "data", "optimizer.*.exp_avg*": "data"}),
}
"""Kinds of sharding. The last is ZeRO's first stage: whole parameters, a split optimizer state."""


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = (torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
    return torch.nn.Sequential(*layers)


def exported(way: str) -> torchstone.Program:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    axes, shardings = WAYS[way]
    return torchstone.export_step(
        model,
        optimizer,
        F.cross_entropy,
        next(batches(1)),
        clip_norm=1.0,
        mesh=torchstone.Mesh(axes),
        shardings=shardings,
    )


@pytest.mark.parametrize("way", WAYS)
def test_steps_equal_those_of_one_device(way: str, tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    program = torchstone.load(exported(way).save(tmp_path / "step.stone"))
    for inputs, targets in batches(5):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        torch.testing.assert_close(program(inputs, targets), loss.detach())
    state = program.state()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(torch.from_numpy(state[name].copy()), weight.detach())
        for key in ("exp_avg", "exp_avg_sq"):
            found = torch.from_numpy(state[f"optimizer.state.{name}.{key}"].copy())
            torch.testing.assert_close(found, optimizer.state[weight][key])


def test_a_checkpoint_of_one_mesh_is_read_for_another(tmp_path: Path) -> None:
    """Five steps on one mesh, saving, and five steps on another mesh equal ten steps on one device."""
    data = list(batches(10))
    first, second = exported("fully sharded"), exported("data and tensor")
    for batch in data[:5]:
        first(*batch)
    torchstone.checkpoint.save(tmp_path / "step5", state=first.state())
    second.load_state(torchstone.checkpoint.load(tmp_path / "step5").metadata["state"])
    whole = exported("data")
    for batch in data:
        expected = whole(*batch)
    for batch in data[5:]:
        loss = second(*batch)
    torch.testing.assert_close(loss, expected)
    for name, value in whole.state().items():
        numpy.testing.assert_allclose(second.state()[name], value, rtol=1e-4, atol=1e-6)
