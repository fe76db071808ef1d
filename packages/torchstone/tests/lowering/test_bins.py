"""Numbers at the edges of bins are counted where eager PyTorch counts them."""

from __future__ import annotations

import pytest
import torch

import torchstone  # noqa: F401  registers the backend

BINS = [(10, 0.0, 1.0), (7, -0.3, 0.9), (100, 0.0, 1.0), (3, 0.1, 0.7), (13, -2.0, 5.0), (49, 0.0, 7.0)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histc_at_edges(dtype: torch.dtype) -> None:
    edges = [
        torch.tensor([low + (high - low) * i / bins for i in range(bins + 1)], dtype=torch.float64).to(dtype)
        for bins, low, high in BINS
    ]

    def counts(edges: list[torch.Tensor]) -> list[torch.Tensor]:
        given = [torch.histc(x, *bins) for x, bins in zip(edges, BINS, strict=True)]
        return given + [torch.histc(x, bins) for x, (bins, _, _) in zip(edges, BINS, strict=True)]

    for found, expected in zip(
        torch.compile(counts, backend="torchstone")(edges), counts(edges), strict=True
    ):
        assert torch.equal(found, expected)
