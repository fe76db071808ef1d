"""Operators called by hand, with arguments that autograd never passes: eager's values, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchstone
from torchstone.errors import UnsupportedOperators

aten = torch.ops.aten


def agrees(function: Callable[..., Any], *args: Any) -> None:
    torch.testing.assert_close(torchstone.export(function, args)(*args), function(*args), equal_nan=True)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss_backward_of_one_sample_and_a_gradient_of_one_element(reduction: int) -> None:
    agrees(
        lambda grad, x, target, total: aten.nll_loss_backward(grad, x, target, None, reduction, -100, total),
        torch.ones(1),
        torch.randn(3),
        torch.tensor(1),
        torch.tensor(2.0),
    )


@pytest.mark.parametrize("padding_idx", [-1, 4])
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
@pytest.mark.parametrize("operator", [aten._embedding_bag, aten._embedding_bag_forward_only], ids=str)
def test_all_results_of_embedding_bag(operator: Any, mode: int, padding_idx: int) -> None:
    agrees(
        lambda weight, indices, offsets: operator(
            weight, indices, offsets, False, mode, False, None, False, padding_idx
        ),
        torch.randn(6, 3),
        torch.tensor([1, 2, 4, 5, 4]),
        torch.tensor([0, 2, 2, 4]),
    )


def test_max_pooling_backward_with_indices_of_any_place() -> None:
    indices = torch.tensor([[[[0, 0], [0, 15]]]])
    agrees(
        lambda grad, x, indices: aten.max_pool2d_with_indices_backward(
            grad, x, [2, 2], [2, 2], [0, 0], [1, 1], False, indices
        ),
        torch.randn(1, 1, 2, 2),
        torch.randn(1, 1, 4, 4),
        indices,
    )
    agrees(
        lambda grad, x, indices: aten.max_pool3d_with_indices_backward(
            grad, x, [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False, indices
        ),
        torch.randn(1, 1, 2, 2, 2),
        torch.randn(1, 1, 4, 4, 4),
        torch.tensor([0, 0, 1, 63, 5, 6, 7, 7]).reshape(1, 1, 2, 2, 2),
    )


@pytest.mark.parametrize(
    ("expand", "sumdim"), [([0], []), ([0], [0]), ([0, 1], [0, 1])], ids=["kept", "summed", "two"]
)
def test_trilinear_with_an_axis_that_no_tensor_has(expand: list[int], sumdim: list[int]) -> None:
    x = torch.tensor(2.0)
    with pytest.raises(UnsupportedOperators, match="an axis is inserted into each of its tensors"):
        torchstone.export(
            lambda a, b, c: aten._trilinear(a, b, c, expand, expand, expand, sumdim, 0), (x, x, x)
        )


@pytest.mark.parametrize("other", [torch.float64, torch.float16, torch.int64], ids=str)
def test_threshold_backward_of_two_dtypes(other: torch.dtype) -> None:
    with pytest.raises(UnsupportedOperators, match="its arguments differ in dtype"):
        torchstone.export(
            lambda grad, x: aten.threshold_backward(grad, x, 0), (torch.ones(3), torch.ones(3).to(other))
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_glu_backward_at_special_values(dtype: torch.dtype) -> None:
    """float16 rounds the sigmoid of -20 to zero: an infinite other half has the gradient NaN."""
    special = torch.tensor([0.0, -0.0, 1, -1, torch.inf, -torch.inf, torch.nan, 65504, -65504, 20, -20])
    pairs = torch.cartesian_prod(special, special).to(dtype)
    agrees(lambda grad, x: aten.glu_backward(grad, x, -1), torch.ones(len(pairs), 1, dtype=dtype), pairs)
