"""Scales that a program computes equal PyTorch's to the last bit, because integers depend on them."""

from __future__ import annotations

import pytest
import torch

import torchstone
from torchstone.lowering import load

load()
decomposed = torch.ops.quantized_decomposed
own = torch.ops.torchstone
COUNT = 60


def tensors() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(8, 8, generator=generator) * 10 ** (place % 5 - 3) for place in range(COUNT))


@pytest.mark.kept("choose_qparams")
@pytest.mark.parametrize("name", ["choose_qparams", "choose_qparams_symmetric"])
def test_scale_and_zero_point(name: str) -> None:
    def chosen(*given: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        choose = getattr(decomposed, name).tensor
        return [choose(each, -127, 127, 1e-9, torch.int8) for each in given]

    found = torchstone.export(chosen, tensors())(*tensors())
    for (scale, zero), (wanted, expected) in zip(found, chosen(*tensors()), strict=True):
        assert torch.equal(scale, wanted)
        assert torch.equal(zero, expected)


@pytest.mark.conformance
def test_a_dynamic_layer() -> None:
    """With unit weights, the output shows each integer times the scale."""
    identity = torch.eye(8, dtype=torch.int8)

    def integers(*given: torch.Tensor) -> list[torch.Tensor]:
        return [
            own.quantized_linear_dynamic(each, identity, [1.0], [0], None, False, reduced)
            for each in given
            for reduced in (True, False)
        ]

    found = torchstone.export(integers, tensors())(*tensors())
    for have, want in zip(found, integers(*tensors()), strict=True):
        assert torch.equal(have, want)
