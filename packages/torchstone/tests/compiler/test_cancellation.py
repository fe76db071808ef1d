"""Differences between a product and elements of that product are exactly what eager PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torchstone

SCALES = (0.7, 0.3, 0.1, 0.17)
"""Numbers whose products have rounding errors of either sign."""


def hidden_rows(value: float = -1e30) -> torch.Tensor:
    """Return scores where one row is hidden, and a part of another one."""
    scores = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    hidden = torch.zeros(4, 8, dtype=torch.bool)
    hidden[1], hidden[2, 3:] = True, True
    return scores.masked_fill(hidden, value)


NORMALIZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(4), reduction="none"),
    "log_softmax written out": lambda x: x - x.logsumexp(-1, keepdim=True),
    "written out": lambda x: (x - x.amax(-1, keepdim=True)).exp(),
    "written out with places": lambda x: (x - x.max(-1, keepdim=True).values).exp(),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NORMALIZED)
def test_a_row_that_is_hidden_before_it_is_scaled(name: str) -> None:
    scores = hidden_rows()
    for scale in SCALES:

        def function(x: torch.Tensor, scale: float = scale) -> torch.Tensor:
            return NORMALIZED[name](x * scale)

        wanted = function(scores)
        torch.testing.assert_close(torch.compile(function, backend="torchstone")(scores), wanted)
        torch.testing.assert_close(torchstone.export(function, (scores,))(scores), wanted)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_hidden_row_in_other_dtypes(dtype: torch.dtype) -> None:
    scores = hidden_rows(-6e4).to(dtype)
    for scale in SCALES:
        found = torchstone.export(lambda x, scale=scale: (x * scale).softmax(-1), (scores,))(scores)
        torch.testing.assert_close(found, (scores * scale).softmax(-1))


def test_gradients_through_a_hidden_row() -> None:
    scores = hidden_rows().requires_grad_()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x * 0.7).softmax(-1).square().sum()

    (wanted,) = torch.autograd.grad(loss(scores), scores)
    (found,) = torch.autograd.grad(torch.compile(loss, backend="torchstone")(scores), scores)
    torch.testing.assert_close(found, wanted)


def test_attention_over_products_of_single_numbers() -> None:
    """With a width of one, the scores are products of two numbers, and 1e30 squared is infinite."""
    x = torch.tensor([-1.1456, 1e30, 0.733, 0.0215])[None, :, None]
    found = torch.compile(F.scaled_dot_product_attention, backend="torchstone")(x, x, x)
    torch.testing.assert_close(found, F.scaled_dot_product_attention(x, x, x), equal_nan=True)


DIFFERENCES: dict[str, Callable[[Any], Any]] = {
    "floor": lambda t: t - t.floor(),
    "round": lambda t: t - t.round(),
    "clamp": lambda t: t - t.clamp(-2, 2),
    "relu": lambda t: t - t.relu(),
    "abs": lambda t: t - t.abs(),
    "first": lambda t: t - t[:1],
    "neighbors": lambda t: t[1:] - t[:-1],
    "sorted": lambda t: t.sort().values - t,
    "rolled": lambda t: t - t.roll(3),
    "itself": lambda t: t - t.clone(),
    "largest": lambda t: t - t.max(),
    "from the largest": lambda t: t.max() - t,
    "plus the negative": lambda t: t + -t.max(),
    "plus the smallest negative": lambda t: t + (-t).amin(),
    "reversed": lambda t: torch.rsub(t, t.max()),
    "sum that is its larger part": lambda t: t - (t + 1e-12),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_product_less_an_element_of_it_is_zero_where_they_are_equal(name: str) -> None:
    numbers = torch.tensor([10.0, 10.0, 3.0, 10.0, -7.0, 10.0, torch.inf, -torch.inf, torch.nan, 1e30, 1e30])
    for scale in SCALES:

        def function(x: torch.Tensor, scale: float = scale) -> torch.Tensor:
            return DIFFERENCES[name](x * scale)

        found, wanted = torch.compile(function, backend="torchstone")(numbers), function(numbers)
        assert torch.equal(found == 0, wanted == 0), (found, wanted)
        torch.testing.assert_close(found, wanted, equal_nan=True)


def test_other_differences_stay_one_operation() -> None:
    x = torch.randn(3, 4)
    for function in (
        lambda x: x.softmax(-1) - 1,
        lambda x: x * 0.7 - (x * 0.7).mean(-1, keepdim=True),
        lambda x: x - x.amax(-1, keepdim=True),
    ):
        text = torchstone.export(function, (x,)).mlir_text()
        main = text[text.index("@main") : text.find("func.func private")]
        assert "stablehlo.select" not in main
