"""Writes the checkpoint that is kept of a released format: ``python format_fixture.py FOLDER``.

It is run once for each format, and its result is read for ever by ``test_format.py``.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy
import torch

from torchstone import checkpoint


def model() -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 3))
    made[2].weight = made[0].weight
    with torch.no_grad():
        for number, tensor in enumerate(made.state_dict().values()):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + number)
    return made


def optimizer(of: torch.nn.Module) -> torch.optim.Optimizer:
    made = torch.optim.Adam(of.parameters(), lr=0.25, betas=(0.5, 0.75))
    for number, parameter in enumerate(of.parameters()):
        parameter.grad = torch.full_like(parameter, number + 1.0)
    made.step()
    return made


def metadata() -> dict[str, Any]:
    return {
        "plain": [None, True, -3, 0.5, "text é", "\udcff"],
        "far": [2**100, float("inf"), complex(1, -0.0), b"\x00\xff"],
        "nested": {"tuple": (1, (2,)), "keys": {0: "a", (1, None): "b"}, "set": {1, 2}},
        "classes": [OrderedDict(b=1, a=2), Counter("aab"), torch.Size((2, 3)), torch.bfloat16],
        "array": numpy.arange(4, dtype=numpy.uint16),
        "scalar": numpy.float32(1.5),
        "strided": torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last),
        "dtypes": [
            (torch.arange(8) % 2).to(torch.uint8).view(dtype)
            for dtype in (torch.bool, torch.bfloat16, torch.float8_e5m2, torch.complex64, torch.uint64)
        ]
        + [torch.arange(16, dtype=torch.uint8).view(torch.complex128), torch.empty(0, 3), torch.tensor(7)],
        "/odd~name\n": torch.ones(1),
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    kept = model()
    checkpoint.save(
        Path(sys.argv[1]), model=kept, optimizer=optimizer(kept), step=7, shard_size=64, **metadata()
    )
