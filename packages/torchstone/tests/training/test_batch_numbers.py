"""Python numbers in a batch: arguments of the program, whose values code of a step can still inspect."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import torchstone
from training_loops import mlp

Tensor = torch.Tensor

ASKED: dict[str, tuple[Callable[[Any], Any], int]] = {
    "nothing": (lambda k: k, 1),
    "isinstance": (lambda k: 3.0 if isinstance(k, float) else 1.0, 1),
    "a real number": (lambda k: 3.0 if isinstance(k, numbers.Real) and not isinstance(k, int) else 1.0, 1),
    "real": (lambda k: k.real, 1),
    "in a set": (lambda k: 3.0 if k in {0.25, 1.0} else 1.0, 3),
    "in a dict": (lambda k: {0.25: 5.0, 0.5: 2.0}.get(k, 7.0), 3),
    "str": (lambda k: {"0.25": 5.0, "0.5": 2.0}.get(str(k), 7.0), 3),
    "an f-string": (lambda k: {"0.2": 5.0, "-0.5": 2.0}.get(f"{-k:.1f}", 7.0), 3),
    "round": (lambda k: round(k * 3), 3),
    "floor": (lambda k: math.floor(k * 3) + math.ceil(k) + math.trunc(k), 3),
    "divmod": (lambda k: divmod(k * 5, 2)[1] + divmod(5, k)[0], 3),
    "is_integer": (lambda k: 2.0 if k.is_integer() else 3.0, 2),
    "hex": (lambda k: 2.0 if k.hex() == (0.5).hex() else 3.0, 3),
}


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", ASKED)
def test_what_code_asks_of_a_number(name: str) -> None:
    function, programs = ASKED[name]
    compare(function, [0.5, 0.5, 0.25, 1.0], programs)


def test_numbers_of_numpy() -> None:
    compare(lambda k: k * (3 if isinstance(k, np.floating) else 2), [*np.array([0.5, 0.25]), 0.5, 1], 3)


def compare(function: Callable[[Any], Any], values: list[Any], programs: int) -> None:
    """Train on batches with ``values``, compiled and in eager PyTorch."""

    def loss(model: torch.nn.Module, batch: Any) -> Any:
        x, k = batch
        return model(x).square().mean() * function(k), function(k)

    model, expected = mlp(), mlp()
    step = torchstone.compile_step(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(0)
    for value in values:
        x = torch.randn(4, 8, generator=generator)
        found, number = step((x, value))
        optimizer.zero_grad()
        result, same = loss(expected, (x, value))
        result.backward()
        optimizer.step()
        torch.testing.assert_close(found, result.detach())
        assert number == same
        assert isinstance(number, type(same))
    torch.testing.assert_close(model.state_dict(), expected.state_dict())
    assert step.programs == programs
