"""Logarithms to base 2 and 10 of powers of the base are whole, as in eager PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

import torchstone  # noqa: F401  registers the backend


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_logarithms_of_powers_are_whole(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    powers = torch.arange(math.log2(info.tiny), math.ceil(math.log2(info.max)), dtype=torch.float64)
    twos = torch.exp2(powers).to(dtype)
    # Not 10.0**n, which is off for many n.
    digits = range(math.ceil(math.log10(info.tiny)), math.floor(math.log10(info.max)) + 1)
    tens = torch.tensor([float(f"1e{n}") for n in digits], dtype=torch.float64).to(dtype)
    found = torch.compile(lambda two, ten: (two.log2(), ten.log10()), backend="torchstone")(twos, tens)
    assert torch.equal(found[0], powers.to(dtype))
    assert torch.equal(found[1], tens.log10())


def test_logarithms_of_what_has_none_and_of_subnormal_numbers() -> None:
    x = torch.tensor([0.0, -0.0, -1.0, -1e-40, 1e-40, 1e-45, math.inf, -math.inf, math.nan, 1.0])
    found = torch.compile(lambda x: (x.log2(), x.log10()), backend="torchstone")(x)
    torch.testing.assert_close(found, (x.log2(), x.log10()), equal_nan=True)
