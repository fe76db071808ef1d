"""NaN that a compiler knows before the program runs, and folds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import torchstone

ROWS = torch.tensor([[True], [False], [True], [False]])
X = torch.linspace(-2, 2, 20).reshape(4, 5)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, rows: torch.where(rows, x, torch.nan).exp(),
        lambda x, rows: (torch.where(rows, x, -torch.inf) - torch.where(rows, x, -torch.inf)).exp(),
    ],
    ids=["a constant", "a difference of infinities"],
)
def test_exponential_of_masked_rows(function: Callable[..., torch.Tensor]) -> None:
    found = torchstone.export(function, (X, ROWS))(X, ROWS)
    torch.testing.assert_close(found, function(X, ROWS), equal_nan=True)
