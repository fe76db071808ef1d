"""Products of float32 are computed in float32, on devices that have faster formats too."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F

import torchstone

FULL = "[HIGHEST, HIGHEST]", "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def products(function: Callable[..., torch.Tensor], dtype: torch.dtype) -> list[str]:
    """The lines of an exported program that multiply matrices or convolve."""
    x, kernel = torch.ones(2, 3, 8, 8, dtype=dtype), torch.ones(4, 3, 3, 3, dtype=dtype)
    text = torchstone.export(function, (x, kernel)).mlir_text(functions=True)
    lines = [line for line in text.splitlines() if "dot_general" in line or "stablehlo.convolution" in line]
    assert lines
    return lines


FUNCTIONS = {
    "matmul": lambda x, _: x @ x,
    "convolution": F.conv2d,
    "attention": lambda x, _: F.scaled_dot_product_attention(x, x, x),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["matmul", "convolution"])
def test_float32_is_multiplied_in_full(name: str, dtype: torch.dtype) -> None:
    for line in products(FUNCTIONS[name], dtype):
        operands = line.rpartition(" : ")[2].partition("->")[0]
        assert any(text in line for text in FULL) == ("f32>" in operands), line


def test_attention_multiplies_in_full() -> None:
    for line in products(FUNCTIONS["attention"], torch.float32):
        assert any(text in line for text in FULL), line


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_pytorch_s_setting_lets_the_device_choose(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    for function in FUNCTIONS.values():
        assert not any("HIGHEST" in line for line in products(function, torch.float32))
