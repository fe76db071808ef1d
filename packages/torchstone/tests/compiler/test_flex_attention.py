"""``flex_attention`` in exports: scores, masks, groups of heads and statistics, as eager computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torchstone

BIAS = torch.randn(4)


def sliding(batch: Any, head: Any, row: Any, column: Any) -> Any:
    return (row >= column) & (row - column < 20)


def biased(score: Any, batch: Any, head: Any, row: Any, column: Any) -> Any:
    return score + BIAS[head] * (row - column)


FORMS: dict[str, Callable[..., Any]] = {
    "plain": flex_attention,
    "scores": lambda q, k, v: flex_attention(q, k, v, score_mod=biased, scale=0.3),
    "statistics": lambda q, k, v: flex_attention(q, k, v, return_lse=True),
    "mask": lambda q, k, v: flex_attention(
        q, k, v, block_mask=create_block_mask(sliding, None, None, 40, 40, device="cpu", BLOCK_SIZE=16)
    ),
}


@pytest.mark.kept("mask", "statistics")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_as_eager(form: str) -> None:
    heads = [torch.randn(2, 4, 40, 8) for _ in range(3)]
    program = torchstone.export(FORMS[form], heads)
    torch.testing.assert_close(program(*heads), FORMS[form](*heads))


@pytest.mark.filterwarnings("ignore")
def test_groups_of_heads_and_learned_scores() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.slope = torch.nn.Parameter(torch.randn(4))

        def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
            def score(score: Any, batch: Any, head: Any, row: Any, column: Any) -> Any:
                return score + self.slope[head] * (row - column)

            return flex_attention(query, key, value, score_mod=score, enable_gqa=True)

    model, heads = Model(), [torch.randn(2, count, 24, 8) for count in (4, 2, 2)]
    with torch.no_grad():
        torch.testing.assert_close(torchstone.export(model, heads)(*heads), model(*heads))
