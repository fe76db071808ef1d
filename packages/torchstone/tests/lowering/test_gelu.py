"""GELU in float32: what it is computed from, and its error where eager PyTorch loses digits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import torchstone

aten = torch.ops.aten


class _Slope(nn.Module):
    """The derivative of GELU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return aten.gelu_backward(torch.ones_like(x), x)


@pytest.mark.parametrize("module", [nn.GELU(), _Slope()], ids=["gelu", "gelu_backward"])
def test_no_error_function_is_expanded(module: nn.Module) -> None:
    assert "erf" not in torchstone.export(module, (torch.zeros(3),)).mlir_text()
    assert "chlo.erfc" in torchstone.export(module, (torch.zeros(3, dtype=torch.float64),)).mlir_text()


def test_relative_accuracy_in_the_lower_tail() -> None:
    x = torch.linspace(-12, 12, 100_001)
    truth = x.double() * torch.special.erfc(x.double() * -math.sqrt(0.5)) / 2
    error = (nn.GELU()(x).double() - truth).abs() / truth.abs().clamp(min=1e-300)
    assert error[x < -4].max() > 1e-3  # in eager PyTorch 1 + erf cancels
    found = torchstone.export(nn.GELU(), (x,))(x).double()
    error = (found - truth).abs() / truth.abs().clamp(min=1e-300)
    # The exponent x²/2 is rounded once, by at most half a unit in its last place.
    bound = (3 + x.double().square() / 2) * 2.0**-23
    assert (error <= bound)[x != 0].all()


def test_ends_and_special_values() -> None:
    x = torch.tensor([0.0, -0.0, 3e19, -3e19, torch.inf, torch.nan])
    found = torchstone.export(nn.GELU(), (x,))(x)
    expected = torch.tensor([0.0, -0.0, 3e19, -0.0, torch.inf, torch.nan])
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(found[:4]), torch.signbit(expected[:4]))
    slope = torchstone.export(_Slope(), (x[:4],))(x[:4])
    torch.testing.assert_close(slope, torch.tensor([0.5, 0.5, 1.0, 0.0]), rtol=0, atol=0)
