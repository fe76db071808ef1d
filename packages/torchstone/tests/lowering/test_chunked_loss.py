"""Linear cross entropy in chunks: the gradients that come along with the loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchstone.compiler.operators.chunked_loss import in_one_piece

module = pytest.importorskip("torch.nn.modules.linear_cross_entropy")
chunked: Any = module._linear_cross_entropy_batch_chunked


@pytest.mark.parametrize("asked", [(True, True, True), (False, True, False), (False, False, False)])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignore_index", [-100, 1])
def test_loss_and_gradients_are_the_chunked_operator_s(
    asked: tuple[bool, bool, bool], reduction: str, weighted: bool, ignore_index: int
) -> None:
    torch.manual_seed(0)
    x, projection, bias = (torch.randn(shape, dtype=torch.float64) for shape in ((7, 3), (4, 3), (4,)))
    target = torch.tensor([0, 1, 2, 3, 1, 0, 2])
    weight = torch.rand(4, dtype=torch.float64) if weighted else None
    rest = (reduction, ignore_index, 0.0, 3, "compact", torch.float64, False, *asked)
    expected = chunked(x, projection, target, bias, weight, *rest)
    torch.testing.assert_close(in_one_piece(x, projection, target, bias, weight, *rest), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("asked", [True, False])
def test_short_floats_are_not_rounded_on_the_way(dtype: torch.dtype, asked: bool) -> None:
    torch.manual_seed(0)
    x, projection, bias = (8 * torch.randn(shape).to(dtype) for shape in ((7, 3), (4, 3), (4,)))
    rest = ("sum", -100, 0.0, 3, "accurate", torch.float32, False, *(asked,) * 3)
    given = (x, projection, torch.tensor([0, 1, 2, 3, 1, 0, 2]), bias, None, *rest)
    for got, want in zip(in_one_piece(*given), chunked(*given), strict=True):
        torch.testing.assert_close(got, want)


def test_no_gradient_of_smoothed_labels() -> None:
    x = torch.randn(2, 3)
    rest = ("mean", -100, 0.1, 1, "compact", torch.float32, False, True, True, True)
    found = in_one_piece(x, torch.randn(4, 3), torch.tensor([0, 1]), None, None, *rest)
    assert found is NotImplemented
